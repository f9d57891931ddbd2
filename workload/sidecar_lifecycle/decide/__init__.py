"""The decisions about pods: pure functions from typed values to decisions with reasons."""
