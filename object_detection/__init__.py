"""Object detection and instance segmentation driven by protobuf text configs."""
