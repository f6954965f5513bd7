"""Writes a pipeline config."""

from google.protobuf import text_format

from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import files


def write_pipeline(pipeline: TrainEvalPipelineConfig, path: str) -> None:
    """Writes the set fields as a text proto and never leaves a partial file under `path`.

    Args:
      pipeline: the config to write.
      path: the file, which is replaced if it exists; its folder is created if it does not.
    """
    files.write_text(path, text_format.MessageToString(pipeline, as_utf8=True))
