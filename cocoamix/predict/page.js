"use strict";
// All text comes from the data below and goes into the page as text, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const AT_ONCE = 120;
const form = document.forms[0];
const list = document.getElementById("images");
const more = document.getElementById("more");
let chosen = [];
let shown = 0;

function make(tag, text, name) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (name) node.className = name;
  return node;
}

// The short name of an image, with its path as a tooltip. It may break after a folder, and only then inside a word.
function named(tag, record, end) {
  const node = make(tag, undefined, "name");
  node.title = record.image;
  for (const part of (record.name || record.image).split(/(?<=[\/\\_])/)) node.append(part, make("wbr"));
  if (end) node.append(end);
  return node;
}

function percent(value) {
  return (100 * value).toFixed(1) + " %";
}

function card(record) {
  const item = make("li");
  if (record.thumbnail) {
    const image = make("img");
    image.src = record.thumbnail;
    image.alt = record.image;
    image.loading = "lazy";
    item.append(image);
  }
  const judged = record.correct === undefined ? "" : record.correct ? " right" : " wrong";
  item.append(make("div", record.predicted, "predicted" + judged));
  if (judged && record.label !== record.predicted) item.append(make("div", "label: " + record.label));
  for (const one of record.top) {
    const bar = make("div", undefined, "bar");
    const fill = make("i");
    fill.style.setProperty("--share", one.probability);
    bar.title = one.class;
    bar.append(fill, make("span", one.class), make("span", percent(one.probability)));
    item.append(bar);
  }
  item.append(named("div", record));
  return item;
}

function fill(select, names) {
  for (const name of names) {
    const option = make("option", name);
    option.value = name;
    select.append(option);
  }
}

function showMore() {
  const next = chosen.slice(shown, shown + AT_ONCE);
  list.append(...next.map(card));
  shown += next.length;
  more.hidden = shown >= chosen.length;
}

function update() {
  const predicted = form.predicted.value;
  const label = form.label ? form.label.value : "";
  const least = form.least.value / 100;
  const most = form.most.value === "" ? 1 : form.most.value / 100;
  const orders = {
    uncertain: (a, b) => a.confidence - b.confidence,
    certain: (a, b) => b.confidence - a.confidence,
    name: (a, b) => (a.image < b.image ? -1 : 1),
  };
  chosen = data.images.filter(
    (one) =>
      (!predicted || one.predicted === predicted) &&
      (!label || one.label === label) &&
      (!form.mistakes || !form.mistakes.checked || one.correct === false) &&
      one.confidence >= least &&
      one.confidence <= most
  );
  chosen.sort(orders[form.order.value]);
  document.getElementById("shown").textContent = chosen.length + " of " + data.images.length + " images";
  list.replaceChildren();
  shown = 0;
  showMore();
}

function matrix(labels) {
  const predicted = [...new Set(data.images.map((one) => one.predicted))].sort();
  const counts = new Map();
  const right = new Set(); // `(unknown)` can also be right
  for (const one of data.images) {
    const key = JSON.stringify([one.label, one.predicted]);
    counts.set(key, (counts.get(key) || 0) + 1);
    if (one.correct) right.add(key);
  }
  const table = make("table");
  const head = make("tr");
  head.append(make("th", "label \\ predicted"), ...predicted.map((name) => make("th", name)));
  const top = make("thead");
  top.append(head);
  const body = make("tbody");
  for (const label of labels) {
    const row = make("tr");
    row.append(make("th", label));
    for (const name of predicted) {
      const key = JSON.stringify([label, name]);
      const count = counts.get(key) || 0;
      const cell = make("td", undefined, count ? (right.has(key) ? "right" : "mistakes") : "");
      if (count) {
        const button = make("button", String(count));
        button.type = "button";
        button.setAttribute("aria-label", count + " images of " + label + " predicted as " + name);
        button.addEventListener("click", () => {
          form.reset();
          form.label.value = label;
          form.predicted.value = name;
          update();
          form.scrollIntoView();
        });
        cell.append(button);
      }
      row.append(cell);
    }
    body.append(row);
  }
  table.append(top, body);
  document.getElementById("matrix").append(table);
}

for (const line of data.summary) document.getElementById("summary").append(make("li", line));
if (data.unreadable.length) {
  const section = document.getElementById("unreadable");
  section.hidden = false;
  for (const one of data.unreadable) section.querySelector("ul").append(named("li", one, ": " + one.error));
}
const labels = [...new Set(data.images.map((one) => one.label).filter((one) => one !== undefined))].sort();
fill(form.predicted, [...new Set(data.images.map((one) => one.predicted))].sort());
if (labels.length) {
  fill(form.label, labels);
  matrix(labels);
} else {
  for (const node of document.querySelectorAll(".labelled")) node.remove();
}
form.addEventListener("input", update);
form.addEventListener("reset", () => setTimeout(update));
form.addEventListener("submit", (event) => event.preventDefault());
more.addEventListener("click", showMore);
update();
