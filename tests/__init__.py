"""Everything that is tested through Python. A package, for programs that tests start."""
