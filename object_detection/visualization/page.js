// Sorts a table by the column whose heading is clicked; cells without a value come last.
for (const table of document.querySelectorAll('table.sortable')) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => head.addEventListener('click', () => {
    const sign = head.getAttribute('aria-sort') === 'descending' ? 1 : -1;
    heads.forEach(each => each.removeAttribute('aria-sort'));
    head.setAttribute('aria-sort', sign > 0 ? 'ascending' : 'descending');
    const key = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const isNumber = [...body.rows].every(row => key(row) === '' || !isNaN(key(row)));
    body.append(...[...body.rows].sort((a, b) => {
      const [left, right] = [key(a), key(b)];
      if (left === '' || right === '') return (left === '') - (right === '');
      return sign * (isNumber ? left - right : left.localeCompare(right));
    }));
  }));
}

// Draws the data of `charts.line_chart`.
const GREY = '#7d8590', GRID = '#8b949e55';
const shortened = value => value == null ? '\u2013' : value.toLocaleString('en', {maximumSignificantDigits: 4});

function axis(label, values) {
  const text = label ? {label, labelSize: 18, labelGap: 0, labelFont: '12px system-ui'} : {};
  return {...text, values, gap: 6, stroke: GREY, font: '12px system-ui', grid: {stroke: GRID, width: 1},
    ticks: {show: false}};
}

function valueRange(data) {
  if (data.share) return () => [0, 1.02];
  if (data.log) return (plot, low, high) => uPlot.rangeLog(low / 1.05, high * 1.05, 10, false);
  return (plot, low, high) => {
    const least = Math.min(0, low);
    return [least, least + ((high - least) * 1.05 || 1)];
  };
}

function drawMark(plot, mark) {
  const x = plot.valToPos(mark, 'x', true), {left, top, width, height} = plot.bbox;
  if (x < left || x > left + width) return;
  plot.ctx.save();
  plot.ctx.strokeStyle = GREY;
  plot.ctx.setLineDash([6, 4]);
  plot.ctx.beginPath();
  plot.ctx.moveTo(x, top);
  plot.ctx.lineTo(x, top + height);
  plot.ctx.stroke();
  plot.ctx.restore();
}

for (const place of document.querySelectorAll('.plot')) {
  const data = JSON.parse(place.dataset.plot);
  const tables = data.lines.map(({points}) => [points.map(p => p[0]), points.map(p => p[1])]);
  const size = () => ({width: Math.max(place.clientWidth, 200), height: data.share ? 320 : 240});
  const labels = (plot, values) => values.map(value => value == null ? '' : shortened(value));
  const plot = new uPlot({
    ...size(),
    scales: {
      x: {time: false, ...(data.share && {range: (plot, low, high) =>
        plot.zoomed ? [low, high] : [0, 1]})},
      y: {distr: data.log ? 3 : 1, range: valueRange(data)},
    },
    axes: [{...axis(data.x, labels), size: 26}, {...axis(data.y, labels), size: 56}],
    series: [
      {label: data.x, value: (plot, value) => shortened(value)},
      ...data.lines.map(line => ({label: line.name, stroke: line.color, width: line.width,
        dash: line.dash, value: (plot, value) => shortened(value)})),
    ],
    cursor: {drag: {x: true, y: false}},
    legend: {markers: {dash: (plot, i) => i && data.lines[i - 1].dash.length ? 'dashed' : 'solid'}},
    hooks: {
      draw: data.mark == null ? [] : [plot => drawMark(plot, data.mark)],
      setSelect: [plot => { plot.zoomed = true; }],
    },
  }, uPlot.join(tables), place);
  plot.over.title = 'Drag to zoom, double-click to see all again';
  plot.over.addEventListener('dblclick', () => { plot.zoomed = false; }, true);
  new ResizeObserver(() => plot.setSize(size())).observe(place);
}
