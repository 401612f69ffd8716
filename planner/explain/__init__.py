"""Why a plan takes as long as it does, what would change that, and whether to keep it."""
