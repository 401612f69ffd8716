"""Stages spread over data x tensor ranks on any kinds of a large cluster."""
