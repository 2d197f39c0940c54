"""Table 1: errors and densities of forests and Gaussian processes on flight delays."""
