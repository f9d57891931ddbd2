"""The demo: the charm's main job on a real node, watched from outside."""
