"""Models of today at their published sizes: whether each opens, and what it takes."""
