"use strict";
// Draws each figure from the JSON beside it, in the colours of the page: light or dark, as the reader's system is.
(() => {
  const config = { displaylogo: false, responsive: true, showLink: false, showSendToCloud: false,
    showEditInChartStudio: false, plotlyServerURL: "", displayModeBar: false };
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const paper = window.matchMedia("print");

  function styled(layout) {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const font = { family: getComputedStyle(document.body).fontFamily, size: 13, color: color("--ink") };
    const result = { ...layout, font, hoverlabel: { ...layout.hoverlabel, bgcolor: color("--paper"),
      bordercolor: color("--rule"), font: { ...font, size: 12 } } };
    for (const name of Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key))) {
      result[name] = { ...layout[name], gridcolor: color("--rule"), linecolor: color("--rule"),
        tickfont: { color: color("--muted") }, title: { ...layout[name].title, font: { size: 13 } } };
    }
    return result;
  }

  function draw() {
    for (const place of document.querySelectorAll(".plot")) {
      if (place.closest("[hidden], details:not([open])") || (paper.matches && isWider(place))) continue;
      const figure = JSON.parse(document.getElementById(place.id + "-data").textContent);
      Plotly.react(place, figure.data, styled(figure.layout), config);
      if (place.dataset.settled) continue;
      place.dataset.settled = "yes";
      place.on("plotly_afterplot", () => settle(place));
      settle(place);
    }
  }

  function settle(place) {
    // Where nothing draws it again, as in a browser that prints a copy of the page, a figure is scaled (page.css).
    const { width, height, right } = place.getBoundingClientRect();
    for (const drawn of place.querySelectorAll(".main-svg")) drawn.setAttribute("viewBox", `0 0 ${width} ${height}`);
    // Below the middle of its axis a long title ends beyond the figure where long names leave the axis little room.
    for (const title of place.querySelectorAll(".infolayer text[class*='xtitle']")) {
      const beyond = title.getBoundingClientRect().right - right;
      if (beyond > 0) title.setAttribute("x", title.getAttribute("x") - beyond);
    }
  }

  // Whether a figure needs more room than the sheet has, on which nobody scrolls: there it is scaled.
  function isWider(place) {
    const box = place.closest(".scroll > div");
    return box !== null && parseFloat(box.style.minWidth) > place.clientWidth;
  }

  // One of several figures, by what is chosen in the lists above it.
  for (const views of document.querySelectorAll(".views")) {
    const lists = [...views.querySelectorAll("select")];
    views.addEventListener("change", () => {
      const key = JSON.stringify(lists.map((list) => list.value));
      for (const view of views.querySelectorAll(".view"))
        view.hidden = JSON.stringify(JSON.parse(view.dataset.view)) !== key;
      draw();
    });
  }

  // Tables that are sorted by a click on a column and filtered by words.
  const page = 200;
  const make = (name, text = "", properties = {}) =>
    Object.assign(document.createElement(name), { textContent: text }, properties);

  function fill(place) {
    const { columns, rows } = JSON.parse(document.getElementById(place.id + "-rows").textContent);
    const numeric = columns.map((_, i) => rows.some((row) => typeof row[i] === "number"));
    const words = rows.map((row) => row.filter((cell) => typeof cell === "string").join(" ").toLowerCase());
    let [order, by, down, shown] = [rows.map((_, i) => i), -1, false, page];
    const filter = make("input", "", { type: "search", placeholder: "words that a row must have" });
    filter.setAttribute("aria-label", "filter rows");
    const count = make("span");
    const [table, body, more] = [make("table"), make("tbody"), make("button", "show more", { className: "more" })];
    const heads = columns.map((name, i) => {
      const head = make("th", "", { className: numeric[i] ? "number" : "text" });
      const button = make("button", name);
      button.addEventListener("click", () => {
        [by, down] = [i, by === i ? !down : numeric[i]];
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (row) => rows[row][i] ?? (numeric[i] ? (down ? -Infinity : Infinity) : "");
        order = rows.map((_, n) => n).sort((a, b) => {
          const [x, y] = [key(a), key(b)];
          return (numeric[i] ? x - y || 0 : x.localeCompare(y)) * (down ? -1 : 1);
        });
        show();
      });
      head.append(button);
      return head;
    });
    function show() {
      const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      const found = order.filter((n) => wanted.every((word) => words[n].includes(word)));
      count.textContent = found.length + " of " + rows.length + " rows";
      more.hidden = found.length <= shown;
      body.replaceChildren(...found.slice(0, shown).map((n) => {
        const line = make("tr");
        line.append(...rows[n].map((cell, i) =>
          make("td", cell === null ? "–" : String(cell), { className: numeric[i] ? "number" : "text" })));
        return line;
      }));
    }
    filter.addEventListener("input", () => { shown = page; show(); });
    more.addEventListener("click", () => { shown += 5 * page; show(); });
    const [head, line, box, scroll] = [make("thead"), make("tr"), make("div"), make("div")];
    [box.className, scroll.className] = ["filter", "scroll"];
    line.append(...heads);
    head.append(line);
    table.append(head, body);
    box.append(filter, count);
    scroll.append(table);
    place.append(box, scroll, more);
    show();
  }

  document.querySelectorAll(".rows").forEach(fill);
  document.querySelectorAll("details").forEach((part) => part.addEventListener("toggle", draw));
  draw();
  for (const query of [dark, paper]) query.addEventListener("change", draw);
})();
