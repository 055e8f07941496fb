"""The engine: `ops` are operators, `program` records them, `passes` rewrite programs, `backends`
run them. A program without passes runs too (``--passes off``).
"""
