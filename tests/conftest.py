"""How many examples hypothesis tries."""

import os

import hypothesis

# Fixed examples keep a run repeatable; BACKOPS_FUZZ=1 looks for new ones instead.
hypothesis.settings.register_profile(
    "default", derandomize=True, deadline=None, database=None, max_examples=150
)
hypothesis.settings.register_profile("fuzz", deadline=None, max_examples=5000, print_blob=True)
hypothesis.settings.load_profile("fuzz" if os.environ.get("BACKOPS_FUZZ") == "1" else "default")
