"""Which of its capabilities stand for a CPU: in figures, and in rules that were made from them."""

# From the best on. Virtual machines call Zen 4 and Zen 5 by the same name, but one of them
# multiplies twice as many numbers at once.
BEST_FIRST = ("amx", "avx512_bf16 wide_512", "avx512_bf16", "avx512", "avx2", "neon")


def best_of(names: str) -> str:
    """The first of these that a CPU with `names` has, `generic` if it has none."""
    there = set(names.split())
    return next((best for best in BEST_FIRST if there.issuperset(best.split())), "generic")
