"""What runs programs: operators, their kernels' order, passes, memory, backends."""
