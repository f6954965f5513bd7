"""Writes a pipeline config."""

import os

from google.protobuf import text_format

from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig


def write_pipeline(pipeline: TrainEvalPipelineConfig, path: str) -> None:
    """Writes the set fields as a text proto; never leaves half a file under `path`.

    Args:
      pipeline: what to write.
      path: the file, replaced if there is one; its folder is made if there is none.
    """
    folder = os.path.dirname(path)
    if folder:
        os.makedirs(folder, exist_ok=True)
    temporary = f'{path}.{os.getpid()}.tmp'
    try:
        with open(temporary, 'w', encoding='utf-8') as file:
            file.write(text_format.MessageToString(pipeline, as_utf8=True))
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.remove(temporary)
        raise
