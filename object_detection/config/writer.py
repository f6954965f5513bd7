"""Writes a pipeline config."""

from google.protobuf import text_format

from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import files


def write_pipeline(pipeline: TrainEvalPipelineConfig, path: str) -> None:
    """Writes the set fields as a text proto; never leaves half a file under `path`.

    Args:
      pipeline: what to write.
      path: the file, replaced if there is one; its folder is made if there is none.
    """
    files.write_text(path, text_format.MessageToString(pipeline, as_utf8=True))
