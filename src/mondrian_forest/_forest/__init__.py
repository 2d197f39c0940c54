"""What a fitted forest is, and how it comes to be.

=====================  =====================================================================
``state``              all that a fit produces, in one frozen dataclass
``parameters``         the parameters of the estimator, checked
``posteriors``         the label models as users choose them, and their hyperparameters
``intake``             data from users: checked, and as the kernels take it
``recipe``             the one fit, over a source of rows: arrays in memory, or a cluster
``stream``             learning more rows: when to review, widen, reweigh, extend
``scaling``            how features become coordinates of the unit cube
``label_limits``       which labels are outliers
``trials``             small forests that tell weights and pruning
``weights``            at which rates features are cut
``pruning``            how probable it is, a priori, that a node is not cut
``mean_function``      a regressor, cross-fitted, around which the forest is put
``choice``             which mean function a forest gets, possibly none
``linear``             a mean function: ridge regression
``boosting``           a mean function: boosted trees
``trees``              all trees at once: sampled, extended, copied, in threads
``held_out``           the spread, learned from rows that are predicted before they are learned
``predict``            trees, then spread, then mean function
``draw``               functions drawn from the posterior, for Thompson sampling
``partition``          the cells and cuts of a tree with two features
``sharing``            many readers and one writer of a forest
``model_file``         the state as a file
``files``              an estimator as a file
``parallel``           threads, or other processes
``validation``         checks of numbers
=====================  =====================================================================
"""
