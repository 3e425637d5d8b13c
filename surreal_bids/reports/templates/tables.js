
'use strict';
// Tables that can be sorted, filtered and copied. Without this script they are plain tables.
const MISSING = '\u2013';
const ORDER = new Intl.Collator('en', { numeric: true });
const INTERVAL = /^-?[\d.]+ to -?[\d.]+$/;

function textOf(row) {
  return Array.from(row.cells, (cell) => cell.textContent.trim());
}

function make(name, properties, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

// Missing values come last, whichever way a column is sorted; intervals go by their lower ends.
function compare(a, b, isNumber, sign) {
  if (a === MISSING || b === MISSING) {
    return (a === MISSING) - (b === MISSING);
  }
  const numbers = [a, b].map((text) => parseFloat(text.replace(/,/g, '')));
  const areIntervals = INTERVAL.test(a) && INTERVAL.test(b);
  return sign * (isNumber || areIntervals ? numbers[0] - numbers[1] : ORDER.compare(a, b));
}

function sortable(table, rows) {
  const heads = Array.from(table.tHead.rows[0].cells);
  heads.forEach((head, column) => {
    const isNumber = rows.some((row) => row.element.cells[column].classList.contains('number'));
    const button = make('button', { type: 'button', className: 'sort' }, ...head.childNodes);
    head.append(button);
    button.addEventListener('click', () => {
      const before = head.getAttribute('aria-sort');
      const first = isNumber ? 'descending' : 'ascending';
      const second = isNumber ? 'ascending' : 'descending';
      const direction = before === first ? second : first;
      heads.forEach((each) => each.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', direction);
      const sign = direction === 'ascending' ? 1 : -1;
      rows.sort((a, b) => compare(a.texts[column], b.texts[column], isNumber, sign));
      table.tBodies[0].append(...rows.map((row) => row.element));
    });
  });
}

function filterable(rows, say) {
  const field = make('input', { type: 'search', autocomplete: 'off' });
  const update = () => {
    const words = field.value.toLowerCase().split(/\s+/);
    rows.forEach((row) => {
      row.element.hidden = !words.every((word) => row.lower.includes(word));
    });
    say(`${shown(rows).length} of ${rows.length} rows`);
  };
  field.addEventListener('input', update);
  update();
  return make('label', {}, 'Rows with ', field);
}

function shown(rows) {
  return rows.filter((row) => !row.element.hidden);
}

function copyable(table, rows, say) {
  const button = make('button', { type: 'button' }, 'Copy these rows (TSV)');
  button.addEventListener('click', async () => {
    const lines = [textOf(table.tHead.rows[0]), ...shown(rows).map((row) => row.texts)];
    const cells = lines.map((line) => line.map((text) => (text === MISSING ? 'n/a' : text)));
    const copied = await copy(cells.map((line) => line.join('\t')).join('\n') + '\n');
    const count = shown(rows).length;
    say(copied ? `${count} rows copied` : 'The browser refuses to copy; select the rows instead');
  });
  return button;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // A browser that keeps the clipboard from files may still know the older way.
    const area = make('textarea', { value: text });
    document.body.append(area);
    area.select();
    const copied = document.execCommand('copy');
    area.remove();
    return copied;
  }
}

for (const table of document.querySelectorAll('table.interactive')) {
  const rows = Array.from(table.tBodies[0].rows, (element) => {
    const texts = textOf(element);
    return { element, texts, lower: texts.join(' ').toLowerCase() };
  });
  const status = make('span', { role: 'status' });
  const say = (text) => { status.textContent = text; };
  const tools = make('div', { className: 'tools' });
  tools.append(filterable(rows, say), copyable(table, rows, say), status);
  table.parentElement.before(tools);
  sortable(table, rows);
}
