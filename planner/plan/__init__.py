"""The plan contract: the only thing that search, API and executor share."""
