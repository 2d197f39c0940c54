"""The engine: flat arrays and Numba kernels, nothing else.

Contract of this layer: it imports NumPy and Numba only; it never validates user input and never
prints; every kernel is a free function over preallocated arrays. Each tree has its own random
stream. Kernels get it as a row of ``uint64`` state, which they advance in place.

=================  =====================  ========================================================
symbol (paper)     name in code           meaning
=================  =====================  ========================================================
tau_j              ``split_time``         time of node j; infinite at leaves; the root's parent has
                                          time 0
delta_j, xi_j      ``split_feature``,     ``x[delta] <= xi`` goes left
                   ``threshold``
l_j, u_j           ``lower``, ``upper``   tight box of the training points in node j
n_j                ``n_samples``          number of training points in node j
lambda             ``lifetime``           cuts at this time or later are not made
eta_j(x)           ``excess_of_row``      distance of x from the box of node j, in the L1 norm
gamma_1, gamma_2   ``prior_scale``,       s(t) = gamma_1 sigmoid(gamma_2 t) is the prior variance
                   ``prior_rate``         accumulated by time t
mu_H, sigma_y^2    ``prior_mean``,        mean of the prior at the root, variance of a label about
                   ``noise_variance``     the mean of its leaf
phi_j              edge variance          s(tau_j) - s(tau_parent)
--                 ``remaining_share``    1 - s(t) / gamma_1 = sigmoid(-gamma_2 t): the share of
                                          gamma_1 that is still to come after time t
--                 ``label_mean``,        mean of the labels in a node, and sum of their squared
                   ``squared_deviation``  differences from it
=================  =====================  ========================================================

The files, in the order in which a fit and a prediction use them:

``arrays``
    What all others are made of. ``kernel`` compiles functions, ``memory`` allocates large arrays,
    ``rng`` is the random stream, ``vector`` treats whole rows as one value, ``boxes`` knows how
    boxes grow and how far rows are outside of them, ``tree`` has the arrays of one tree,
    ``contests`` the candidate cuts of nodes, ``grove`` all trees of a forest, and ``check`` finds
    faults in arrays from a file.
``features``, ``moments``
    What is done to each table that comes in; number, mean and squared deviation of labels.
``growth``
    The structure of trees. ``cuts`` chooses where a node is cut, ``sample`` is batch sampling
    (Alg. 1 and 2), ``extend`` is online learning with random cuts (Alg. 3 and 4). ``join`` lets
    rows join trees whose cuts look at the labels, by the ``contest`` of each node; ``leave`` lets
    rows leave any tree; ``rebuild`` samples subtrees anew in place. ``learn`` samples all trees of
    a forest, ``top`` grows trees over rows that no process holds at once.
``labels``
    The label models: what a tree says about labels, given its structure.
``mixtures``
    ``route`` takes rows through trees (Alg. 5), ``collect`` and ``reduce`` combine the trees.
    ``neighbours`` finds what rows are compared with: their novelty, and labels near them.
    ``mixture``, ``quantiles`` and ``crps`` compute with the mixtures that result, ``student`` and
    ``series`` with their components.
``spread``
    How wide and of which shape the mixtures are, learned from held-out rows. ``blend`` mixes in the
    labels near a row.
``boosted``
    Sums of boosted trees, for a mean function.
"""
