"""A torch module becomes numbered layers with global parameter names."""
