"""A place that the values of training steps are written to: a table for spreadsheets."""

import csv
import dataclasses
import pathlib

from object_detection.builders.sink_builder import Run, Sink


@dataclasses.dataclass
class CsvSink(Sink):
    """Appends step, learning rate and total loss to a file in the folder `train` of model_dir.

    Attributes:
      file_name: name of the file.
    """

    file_name: str = 'steps.csv'

    def start(self, run: Run) -> None:
        """Keeps the lines of the steps that the run resumes from."""
        self._path = pathlib.Path(run.folder, self.file_name)
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        kept = [line for line in lines if int(line.split(',')[0]) <= run.step]
        self._path.write_text(''.join(f'{line}\n' for line in kept))

    def write(self, record) -> None:
        """Appends a line."""
        with self._path.open('a', newline='') as file:
            values = (record.step, record.learning_rate, record.losses['Loss/total_loss'])
            csv.writer(file, lineterminator='\n').writerow(values)
