"""What a training calls as it goes: writes a table for spreadsheets, and may end the training."""

import csv
import dataclasses
import pathlib
from collections.abc import Mapping

from object_detection.builders.callback_builder import (
    Callback,
    EvaluationRecord,
    Start,
    StepRecord,
)


@dataclasses.dataclass
class CsvValues(Callback):
    """Appends a line `step,name,value` for each value to a file of model_dir.

    Attributes:
      file_name: name of the file.
      enough: total loss below which the training ends.
    """

    file_name: str = 'values.csv'
    enough: float = 0.0

    def on_start(self, start: Start) -> None:
        """Keeps the lines of the steps that the run resumes from."""
        self._path = pathlib.Path(start.model_dir, self.file_name)
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        kept = [line for line in lines if int(line.split(',')[0]) <= start.step]
        self._path.write_text(''.join(f'{line}\n' for line in kept))

    def on_step(self, record: StepRecord) -> str | None:
        """Appends the lines; a sentence that is returned ends the training."""
        self._append(record.step, record.values)
        loss = record.values['Loss/total_loss']
        return f'the loss is {loss:.3f}' if loss < self.enough else None

    def on_evaluation(self, record: EvaluationRecord) -> None:
        """Appends the metrics."""
        metrics = {f'eval/{name}': value for name, value in record.metrics.items()}
        self._append(record.step, metrics)

    def _append(self, step: int, values: Mapping[str, float]) -> None:
        with self._path.open('a', newline='') as file:
            writer = csv.writer(file, lineterminator='\n')
            writer.writerows((step, name, value) for name, value in values.items())
