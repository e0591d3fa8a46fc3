// Tables of a report: each can be sorted by its headings, and filtered by words. The page is whole
// without this.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const number = head.classList.contains("num");
    const key = (row) => {
      const text = row.cells[column].dataset.key ?? row.cells[column].textContent;
      const value = number ? Number.parseFloat(text) : text.toLowerCase();
      return Number.isNaN(value) ? Infinity : value;
    };
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const sign = descending ? -1 : 1;
      const keyed = rows.map((row) => [key(row), row]);
      keyed.sort(([a], [b]) => (a < b ? -sign : a > b ? sign : 0));
      body.append(...keyed.map(([, row]) => row));
    });
  });
  if (rows.length < 5) continue;
  const input = document.createElement("input");
  input.type = "search";
  const label = document.createElement("label");
  label.className = "filter";
  label.append("Filter ", input);
  const shown = document.createElement("output");
  label.append(" ", shown);
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
    const left = rows.filter((row) => !row.hidden).length;
    shown.textContent = left === rows.length ? "" : `${left} of ${rows.length} rows`;
  });
  table.parentElement.before(label);
}
