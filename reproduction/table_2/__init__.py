"""Table 2: calibration of forests on flight delays."""
