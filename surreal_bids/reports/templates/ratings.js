
'use strict';
// A form to rate each image. Ratings stay in this browser until they are saved as a table, which
// --exclude reads. Reports in one folder share them, if the browser lets local files share anything.
const RATINGS = ['not rated', 'pass', 'unsure', 'fail'];
const STORE = `surreal_bids ratings of ${location.pathname.replace(/[^/]*$/, '')}`;
const given = {};

function make(name, properties, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

function known() {
  try {
    return { ...JSON.parse(localStorage.getItem(STORE)), ...given };
  } catch {
    return { ...given };
  }
}

function keep(name, entry) {
  given[name] = entry;
  try {
    localStorage.setItem(STORE, JSON.stringify(known()));
    return 'kept in this browser';
  } catch {
    return 'not kept by this browser: download before you leave this page';
  }
}

function rated() {
  const entries = Object.values(known()).filter((entry) => RATINGS.indexOf(entry.rating) > 0);
  return entries.sort((a, b) => (a.participant + a.session < b.participant + b.session ? -1 : 1));
}

function download() {
  const cell = (text) => text.replace(/\s+/g, ' ').replace(/"/g, "'").trim() || 'n/a';
  const rows = rated().map((entry) => [entry.participant, entry.session, entry.rating, entry.reason]);
  const lines = [['participant_id', 'session_id', 'rating', 'reason'], ...rows];
  const text = lines.map((line) => line.map(cell).join('\t') + '\n').join('');
  const address = URL.createObjectURL(new Blob([text], { type: 'text/tab-separated-values' }));
  make('a', { href: address, download: 'ratings.tsv' }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}

document.querySelectorAll('.rating').forEach((place, number) => {
  const { participant, session } = place.dataset;
  const name = `${participant} ${session}`;
  const status = make('span', { role: 'status' });
  const before = known()[name] || { rating: RATINGS[0], reason: '' };
  const reason = make('input', { type: 'text', value: before.reason, autocomplete: 'off' });
  const choices = RATINGS.map((rating) => make('input', {
    type: 'radio', name: `rating-${number}`, value: rating, checked: rating === before.rating,
  }));
  const update = () => {
    const { value: rating } = choices.find((choice) => choice.checked);
    const where = keep(name, { participant, session, rating, reason: reason.value });
    const count = rated().length;
    status.textContent = `${count} ${count === 1 ? 'image' : 'images'} rated, ${where}`;
  };
  const form = make('fieldset', {}, make('legend', {}, 'Your rating of this image'));
  choices.forEach((choice) => form.append(make('label', {}, choice, ` ${choice.value}`)));
  form.append(make('label', {}, 'Note ', reason));
  form.addEventListener('input', update);
  const button = make('button', { type: 'button' }, 'Download ratings');
  button.addEventListener('click', download);
  form.append(button, status);
  place.append(form);
});
