"""The engine: flat arrays and Numba kernels, nothing else.

Contract of this layer: it imports NumPy and Numba only; it never validates user input and never
prints; every kernel is a free function over preallocated arrays. One random stream per tree comes
in as a row of ``uint64`` state that the kernels advance in place.

=================  ====================  ==========================================================
symbol (paper)     name in code          meaning
=================  ====================  ==========================================================
tau_j              ``split_time``        time of node j; infinite at leaves; the root's parent has
                                         time 0
delta_j, xi_j      ``split_feature``,    ``x[delta] <= xi`` goes left
                   ``threshold``
l_j, u_j           ``lower``, ``upper``  tight box of the training points in node j
n_j                ``n_samples``         number of training points in node j
gamma_1, gamma_2   ``prior_scale``,      s(t) = gamma_1 sigmoid(gamma_2 t) is the prior variance
                   ``prior_rate``        accumulated by time t
mu_H, sigma_y^2    ``prior_mean``,       mean of the prior at the root, variance of a label about
                   ``noise_variance``    the mean of its leaf
phi_j              edge variance         s(tau_j) - s(tau_parent)
--                 ``remaining_share``   1 - s(t) / gamma_1 = sigmoid(-gamma_2 t): the share of
                                         gamma_1 that is still to come after time t
=================  ====================  ==========================================================

Files, in the order in which a fit and a prediction use them: ``rng`` (random stream), ``tree``
(arrays of one tree), ``sample`` (Alg. 1 and 2), ``extend`` (Alg. 3 and 4), ``posterior`` (label
model: moments, upward messages, hyperparameters), ``pruning`` (another label model), ``evidence``
(empirical Bayes), ``learn`` (all of these for one tree), ``predict`` (Alg. 5), ``components`` (what
stands along a path), ``mixture`` and ``student`` (density, cdf, quantiles and CRPS of mixtures),
``spread`` (one factor for the width of all of them), ``top`` (trees over rows that no process holds
at once). ``check`` looks at arrays from a file before they are used; ``kernel``, ``vector``,
``memory`` and ``intake`` (tables from users) serve all. ``reference`` is the slow transcription of
the paper that the tests compare with.
"""
