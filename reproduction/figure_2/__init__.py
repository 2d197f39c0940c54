"""Figure 2: the predictive uncertainty of three forests beyond the training data."""
