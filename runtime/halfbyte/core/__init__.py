"""What runs programs: operators, programs, passes, backends."""
