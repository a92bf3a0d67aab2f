"""A run's settings, metrics and places, handed to the tools that people already use: TensorBoard, MLflow, W&B."""
