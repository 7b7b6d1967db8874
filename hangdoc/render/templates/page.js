"use strict";

// The page says everything without this script, which adds sorting, filtering, folding and copying.
for (const tools of document.querySelectorAll(".tools")) tools.hidden = false;

for (const card of document.querySelectorAll(".ranks")) {
  const body = card.querySelector("tbody");
  const rows = Array.from(body.rows);
  const input = card.querySelector("input");
  const chips = Array.from(card.querySelectorAll("[data-show]"));
  const status = card.querySelector(".shown");
  const standing = status.textContent;
  const texts = rows.map((row) => `${row.textContent} ${row.className}`.replace(/\s+/g, " ").toLowerCase());
  const intervals = rows.map((row) => spans(row.cells[0].textContent));
  let wanted = "";

  // "0-2, 5" as pairs of numbers.
  function spans(text) {
    return Array.from(text.matchAll(/(\d+)(?:-(\d+))?/g), ([, from, to]) => [Number(from), Number(to ?? from)]);
  }

  function matches(at, words) {
    if (wanted && !rows[at].classList.contains(wanted)) return false;
    return words.every((word) => {
      const range = /^(\d+)(?:-(\d+))?$/.exec(word);
      if (!range) return texts[at].includes(word);
      const [from, to] = [Number(range[1]), Number(range[2] ?? range[1])];
      const named = intervals[at].some(([first, last]) => first <= to && from <= last);
      return named || (!range[2] && rows[at].querySelector(".pid").textContent === word);
    });
  }

  function show() {
    const words = input.value.toLowerCase().split(/[\s,]+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, at) => {
      row.hidden = !matches(at, words);
      shown += !row.hidden;
    });
    status.textContent = shown === rows.length ? standing : `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`;
  }

  input.addEventListener("input", show);
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      wanted = chip.dataset.show;
      for (const other of chips) other.setAttribute("aria-pressed", String(other === chip));
      show();
    });
  }

  const heads = Array.from(card.querySelectorAll("th"));
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      sort(column, head.dataset.kind === "number", down);
    });
  });

  function sort(column, numeric, down) {
    const value = (row) => {
      const cell = row.cells[column];
      const text = cell.dataset.v ?? cell.textContent;
      return numeric ? parseFloat(text) : text;
    };
    const compare = (a, b) => {
      if (!numeric) return a.localeCompare(b, "en", { numeric: true }) * (down ? -1 : 1);
      if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b); // what is unknown comes last
      return (a - b) * (down ? -1 : 1);
    };
    const keyed = rows.map((row) => [value(row), row]);
    keyed.sort(([a], [b]) => compare(a, b));
    body.append(...keyed.map(([, row]) => row));
  }
}

for (const button of document.querySelectorAll("[data-fold]")) {
  button.addEventListener("click", () => {
    for (const fold of button.closest(".stacks").querySelectorAll("details")) fold.open = Boolean(button.dataset.fold);
  });
}

for (const button of document.querySelectorAll(".copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("code");
    let done = true;
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      getSelection().selectAllChildren(code); // no clipboard here: the text is selected, to be copied by hand
      done = document.execCommand("copy");
    }
    button.textContent = done ? "Copied" : "Selected";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}
