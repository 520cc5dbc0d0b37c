"""The worker by itself, over verbs that tests steer."""
