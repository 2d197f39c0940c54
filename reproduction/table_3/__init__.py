"""Table 3: Bayesian optimisation of two functions and two grids."""
