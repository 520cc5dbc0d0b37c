"""The client by itself, over transports that tests steer."""
