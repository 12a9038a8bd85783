"""The loops over coefficients: in torch, in numba, in Triton."""
