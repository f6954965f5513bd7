import dataclasses
import html.parser
import io
import json
import re

import click.testing
import numpy as np
import pytest
from PIL import Image

from object_detection.cli import report
from object_detection.errors import UserError
from object_detection.metrics.analysis import images as stored
from object_detection.metrics.analysis.images import Compared
from object_detection.reporting import comparison, page
from object_detection.training import status
from object_detection.visualization.drawing import class_color
from tests import rows
from tests.browser import broken_images
from tests.metrics.analysis.cases import AT, AWAY, image
from tests.reporting import model_dirs

DASH = '\u2013'


class _Checker(html.parser.HTMLParser):
    """Notes tags that are closed in the wrong order, and what would be loaded."""

    def __init__(self):
        super().__init__()
        self.open, self.sources, self.text = [], [], []

    def handle_starttag(self, tag, attributes):
        self.sources += [v for k, v in attributes if k in ('src', 'href')]
        if tag not in ('meta', 'img', 'br'):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def written(folder, **extras):
    path = folder / 'report.html'
    page.write(folder, path, page.Extras(**extras))
    text = path.read_text(encoding='utf-8')
    checker = _Checker()
    checker.feed(text)
    assert checker.open == []
    assert all(source.startswith('data:image/') for source in checker.sources)
    # Names of namespaces are not loaded, nor is the address of the library of charts.
    assert 'http' not in re.sub('data:[^"]*|xmlns(:xlink)?="[^"]*"|/[*]! https:.*', '', text)
    return text


def row(text, name):
    found = re.search(f'<tr><th>{re.escape(name)}</th>(.*?)</tr>', text)[1]
    return re.findall('>([^<]*)</td>', found)


def charts_of(text):
    return [json.loads(html.unescape(each)) for each in re.findall('data-plot="(.*?)"', text)]


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
    """The page of a whole training, and its text."""
    folder = model_dirs.whole(tmp_path_factory.mktemp('model_dir'))
    base = folder / 'base.config'
    base.write_text(model_dirs.CONFIG.replace('3 #', '80 #'))
    return folder / 'report.html', written(folder, base=str(base))


def test_metrics(whole):
    _, text = whole
    assert row(text, 'AP, mean over IoU .50 to .95') == ['0.500', '0.438']
    assert row(text, 'AP, objects over 96² pixels') == ['\u2013', '0.250']
    assert row(text, 'pets') == ['0.125']
    for name, value in model_dirs.METRICS.items():
        assert row(text, name) == [f'{value:.4g}']


def test_losses_of_evaluations_are_beside_those_of_the_training(whole):
    charts = charts_of(whole[1])
    assert [[line['name'] for line in chart['lines']] for chart in charts[:2]] == [
        ['training', 'evaluation'],
        ['training'],
    ]
    assert charts[0]['lines'][1]['points'] == [[4, 0.625], [8, 1.25]]


def test_pictures_are_first(whole):
    titles = re.findall('<h2>(.*?)</h2>', whole[1])
    assert titles[:3] == ['Worst images', 'Best images', 'Metrics']


def test_the_learning_rate_has_a_linear_axis(tmp_path):
    model_dirs.write_history(tmp_path, scale=1.0)
    file = tmp_path / 'train' / 'history.jsonl'
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    entries[-1]['learning_rate'] = 1e-7
    file.write_text(''.join(json.dumps(entry) + '\n' for entry in entries))
    (rate,) = (c for c in charts_of(written(tmp_path)) if c['lines'][0]['name'] == 'learning rate')
    assert rate['log'] is False


def test_confusion_has_shares_of_the_rows(tmp_path):
    images = [image([(1, AT), (1, AWAY)], [(1, AT, 0.9)]), image([(1, AT)], [(1, AT, 0.9)])]
    found = model_dirs.evaluated(images, {1: 'cat'}, pictures=False)
    model_dirs.write_evaluation(tmp_path, {'DetectionBoxes_Precision/mAP': 0.5}, found)
    matrix = written(tmp_path).partition('class="matrix"')[2]
    assert '>67%<br><small>2</small></td>' in matrix
    assert '>33%<br><small>1</small></td>' in matrix


def test_a_score_threshold_is_advised(whole):
    _, text = whole
    assert re.search(r'Advised: 0\.\d\d, where F1 is greatest: precision \d', text)


def test_thresholds_of_each_category(tmp_path):
    images = [image([(1, AT), (2, AWAY)], [(1, AT, 0.9), (1, AWAY, 0.6), (2, AWAY, 0.2)])]
    found = model_dirs.evaluated(images, {1: 'cat', 2: 'dog'}, pictures=False)
    model_dirs.write_evaluation(tmp_path, {'DetectionBoxes_Precision/mAP': 0.5}, found)
    text = written(tmp_path)
    # The best of each: a cat from 0.61 to 0.90, a dog up to 0.20.
    section = text.partition('<h2>Score threshold</h2>')[2]
    assert row(section, 'cat')[:4] == ['0.75', '1.000', '1.000', '1.000']
    assert row(section, 'dog')[:4] == ['0.10', '1.000', '1.000', '1.000']
    f1 = next(c for c in charts_of(section) if c['x'] == 'score threshold')
    assert f1['mark'] == pytest.approx(0.1)
    colors = {line['name']: line['color'] for line in f1['lines']}
    for class_id, name in ((1, 'cat'), (2, 'dog')):
        assert colors[name] == '#{:02x}{:02x}{:02x}'.format(*class_color(class_id))


def test_masks_and_keypoints_are_analysed_by_their_own_overlap(tmp_path):
    one = image([(1, AT), (2, AWAY)], [(1, AT, 0.9), (2, AWAY, 0.8)])
    masks = Compared('masks', [1, 2], [one._replace(overlap=np.array([[0.3, 0], [0, 0.9]]))])
    poses = Compared('keypoints of cat', [1], [one._replace(overlap=np.array([[0.7, 0], [0, 0]]))])
    found = model_dirs.evaluated([one], {1: 'cat', 2: 'dog'}, pictures=False)
    found = dataclasses.replace(found, compared=[masks, poses])
    model_dirs.write_evaluation(tmp_path, {'DetectionBoxes_Precision/mAP': 0.5}, found)
    text = written(tmp_path)
    by_boxes, by_masks, by_poses = re.split('The same by (?:masks|keypoints of cat)<', text)
    localisation = 'localisation: the right class, but an {} of 0.1 to 0.5'
    assert row(by_boxes, localisation.format('IoU')) == ['0', '0.000']
    assert row(by_masks, localisation.format('IoU')) == ['1', '0.500']
    assert row(by_poses, localisation.format('similarity of keypoints (OKS)'))[0] == '0'
    assert '<th>dog</th>' not in by_poses.partition('</details>')[0]


def test_categories(whole):
    # Objects, detections, AP of the metrics, AP and recall at IoU 0.5 of the stored boxes.
    cells = row(whole[1], 'dog/cat')
    objects = [each for i in model_dirs.evaluated().images for each in i.classes.tolist()]
    assert cells[0] == str(objects.count(1))
    assert cells[2:4] == ['0.750', '0.625']
    assert row(whole[1], '&lt;b&gt;bird&lt;/b&gt;')[2:4] == [DASH, DASH]


def test_errors_are_those_of_tide(whole):
    # See tests/metrics/analysis/test_errors.py.
    name = 'duplicate: an object that a better detection has found'
    assert row(whole[1], name) == ['51', '0.055']


def test_config_and_its_difference(whole):
    _, text = whole
    assert '<span class="removed">-    num_classes: 80</span>' in text
    assert '<span class="added">+    num_classes: 3</span>' in text
    assert 'num_classes: 3 # of &lt;b&gt;these&lt;/b&gt;' in text


def test_the_page_fits_a_narrow_screen(whole, open_page):
    shown = open_page(whole[0])
    shown.set_viewport_size({'width': 390, 'height': 800})
    assert shown.evaluate('document.documentElement.scrollWidth') <= 390


def test_the_page_works_in_a_browser(whole, open_page):
    shown = open_page(whole[0])
    assert broken_images(shown) == []
    assert shown.evaluate('document.images.length') == 2
    table = shown.locator('table.sortable').first

    def names():
        return table.locator('tbody th').all_inner_texts()

    heads = table.locator('thead th')
    heads.nth(0).click()
    assert names() == ['fish', 'dog/cat', '<b>bird</b>']
    heads.nth(0).click()
    assert names() == ['<b>bird</b>', 'dog/cat', 'fish']
    assert heads.nth(0).get_attribute('aria-sort') == 'ascending'
    # Numbers are sorted as numbers, and what has none is last in both directions.
    for _ in range(2):
        heads.nth(3).click()
        assert names()[0] == 'dog/cat'
    heads.nth(2).click()
    counts = table.locator('tbody td:nth-child(3)').all_inner_texts()
    assert [int(c) for c in counts] == sorted(map(int, counts), reverse=True)


def test_pictures_are_reduced_to_keep_the_page_small(tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (900, 900, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, 'JPEG', quality=85)
    pictures = [stored.Picture(str(i), '', i < 6, file.getvalue()) for i in range(12)]
    assert 12 * len(file.getvalue()) > 5e6
    found = dataclasses.replace(model_dirs.evaluated(), pictures=pictures)
    model_dirs.write_evaluation(tmp_path, found=found)
    text = written(tmp_path)
    assert 2e6 < len(text) < 5e6
    assert text.count('data:image/jpeg') == 12


def test_a_single_evaluation_is_no_chart(tmp_path):
    folder = model_dirs.whole(tmp_path)
    assert '<h2>AP over time</h2>' in written(folder)
    (file,) = (folder / 'eval').rglob('metrics.jsonl')
    file.write_text(file.read_text().splitlines()[-1] + '\n')
    assert '<h2>AP over time</h2>' not in written(folder)


def test_a_folder_without_a_training_is_refused(tmp_path):
    with pytest.raises(UserError, match='files of a training'):
        page.write(tmp_path, tmp_path / 'report.html')
    assert not list(tmp_path.iterdir())


def test_without_an_evaluation(tmp_path):
    model_dirs.write_history(tmp_path)
    text = written(tmp_path)
    assert 'No evaluation has been finished yet.' in text
    assert '<h2>Losses</h2>' in text


def test_without_stored_boxes(tmp_path):
    model_dirs.write_evaluation(tmp_path, {'DetectionBoxes_Precision/mAP': 0.5})
    text = written(tmp_path)
    assert row(text, 'AP, mean over IoU .50 to .95') == ['0.500']
    assert '<th>mask</th>' not in text
    assert 'tfod eval --run_once' in text


def test_metrics_of_more_detections(tmp_path):
    names = ('Precision/mAP@500', 'Precision/mAP@500 (large)', 'Recall/AR@10', 'Recall/AR@500')
    metrics = {f'DetectionBoxes_{name}': 0.5 for name in names}
    model_dirs.write_evaluation(tmp_path, metrics)
    text = written(tmp_path)
    assert row(text, 'AP, mean over IoU .50 to .95, 500 detections') == ['0.500']
    assert row(text, 'AP, objects over 96² pixels, 500 detections') == ['0.500']
    assert row(text, 'AR with 10 detections an image') == ['0.500']
    assert row(text, 'AR with 500 detections an image') == ['0.500']


NO_DETECTIONS = [image([(1, AT), (2, AWAY)])]
CASES = {
    'no objects': ([image(found=[(1, AT, 0.9)])], {1: 'cat'}),
    'no detections': (NO_DETECTIONS, {1: 'cat', 2: 'dog'}),
    'neither': ([image()], {1: 'cat'}),
    'no images': ([], {1: 'cat'}),
    'one class': ([image([(1, AT)], [(1, AT, 0.9)])], {1: 'cat'}),
    'a class never detected': ([image([(1, AT), (2, AWAY)], [(1, AT, 0.9)])], {1: 'a', 2: '$x^'}),
    '1,000 classes': (
        [image([(i, AT)], [(i % 1000 + 1, AT, 0.9)]) for i in range(1, 1001)],
        {i: f'class {i}' for i in range(1, 1001)},
    ),
}


@rows.parametrize('case', CASES)
def test_odd_cases_give_a_page(tmp_path, case):
    images, names = CASES[case]
    found = model_dirs.evaluated(images, names, pictures=False)
    model_dirs.write_evaluation(tmp_path, {'DetectionBoxes_Precision/mAP': -1.0}, found)
    text = written(tmp_path)
    assert len(text) < 2**20
    if images:
        assert '<h2>Errors by kind</h2>' in text
    assert set(names.values()) <= set(re.findall('<tr><th>(.*?)</th>', text))


def test_markup_in_names_is_text(tmp_path):
    bad = '<script>alert(1)</script>'
    one = image([(1, AT)], [(1, AT, 0.9)], name=bad)
    found = model_dirs.evaluated([one], {1: bad})
    metrics = {f'DetectionBoxes_PerformanceByCategory/mAP/{bad}': 0.5, bad: np.pi}
    model_dirs.write_evaluation(tmp_path, metrics, found)
    text = written(tmp_path, title=bad, facts={bad: bad}, pictures=[(bad, model_dirs.jpeg())])
    assert text.count('<script>') == 1
    assert '<i>' not in text


def test_a_report_at_the_end_never_fails_a_training(tmp_path, caplog):
    page.write_at_end(tmp_path)
    assert not list(tmp_path.iterdir())
    (tmp_path / 'train').mkdir()
    (tmp_path / status.FINISHED_FILE).write_text('{}')
    page.write_at_end(tmp_path)
    assert 'no report was written' in caplog.text
    model_dirs.whole(tmp_path)
    page.write_at_end(tmp_path)
    assert (tmp_path / 'report.html').exists()


def test_comparison(tmp_path, open_page):
    folders = [model_dirs.whole(tmp_path / name, scale) for name, scale in (('a', 1.0), ('b', 2.0))]
    other = model_dirs.METRICS | {'DetectionBoxes_Precision/mAP': 0.75}
    advised = {'score_threshold': 0.35, 'precision': 0.75, 'recall': 0.5, 'f1': 0.6, 'by_class': {}}
    model_dirs.write_evaluation(folders[1], other, advised_threshold=advised)
    path = tmp_path / 'comparison.html'
    comparison.write(folders, path)
    text = path.read_text()
    assert row(text, 'box: AP, mean over IoU .50 to .95') == ['0.5', '0.75', '+0.25']
    assert row(text, 'box: AP, objects over 96² pixels') == [DASH, DASH, DASH]
    assert row(text, 'dog/cat') == ['0.75', '0.75', '+0']
    assert row(text, 'advised score threshold') == [DASH, '0.35', DASH]
    assert row(text, 'f1 at the advised threshold') == [DASH, '0.6', DASH]
    assert text.index('f1 at the advised') < text.index('<tr><th>Loss/total_loss</th>')
    (losses,) = (c for c in charts_of(text) if any(s['name'] == 'a evaluation' for s in c['lines']))
    assert [s['name'] for s in losses['lines']] == ['a', 'a evaluation', 'b', 'b evaluation']
    assert row(text, 'a') == ['5.0', '25.0%', '1.1 GB']
    shown = open_page(path)
    assert shown.locator('.plot canvas').count() == 3
    assert re.findall('<h2>(Total loss|Learning rate|AP over time)</h2>', text)


def run(*arguments):
    return click.testing.CliRunner().invoke(report.command, [str(each) for each in arguments])


def test_command(tmp_path):
    folder = model_dirs.whole(tmp_path / 'a')
    done = run(folder)
    assert done.exit_code == 0, done.output
    assert done.output == f'Look at {folder}/report.html\n'
    assert (folder / 'report.html').exists()
    done = run(folder, model_dirs.whole(tmp_path / 'b'), '--output', tmp_path / 'c.html')
    assert done.exit_code == 0, done.output
    assert (tmp_path / 'c.html').exists()


def test_command_refuses_a_base_of_several(tmp_path):
    folders = [model_dirs.whole(tmp_path / name) for name in 'ab']
    base = folders[0] / 'resolved_pipeline.config'
    assert '--base' in str(run(*folders, '--base', base).exception)
    assert 'different' in str(run(folders[0], folders[0]).exception)
