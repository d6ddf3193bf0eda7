"use strict";
// Tables sort by any column: click its header, or focus it with the tab key and press Enter or Space.
const byName = new Intl.Collator("en", { numeric: true }); // random:2 before random:10
const spoken = document.getElementById("spoken");

function valueOf(row, column) {
  const cell = row.cells[column];
  const value = cell.dataset.value;
  if (value === undefined) return cell.textContent.trim().toLowerCase();
  return value === "" ? null : Number(value);
}

function sortBy(table, column) {
  const head = table.tHead.rows[0].cells[column];
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const numeric = rows.some((row) => typeof valueOf(row, column) === "number");
  const before = head.getAttribute("aria-sort");
  // The first click puts the highest number or the first name on top.
  const up = before === "none" ? !numeric : before === "descending";
  const order = (a, b) => {
    const x = valueOf(a, column), y = valueOf(b, column);
    if (x === null || y === null) return (x === null) - (y === null); // missing values stay at the end
    const difference = typeof x === "number" && typeof y === "number" ? x - y : byName.compare(String(x), String(y));
    return up ? difference : -difference;
  };
  rows.sort(order).forEach((row) => body.append(row));
  for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  spoken.textContent = `Sorted by ${head.textContent.trim()}, ${up ? "ascending" : "descending"}`;
}

for (const table of document.querySelectorAll("table")) {
  Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => sortBy(table, column));
  });
}
