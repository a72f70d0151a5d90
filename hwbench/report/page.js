"use strict";
// Draws each figure from the JSON beside it, in the colours of the page: light or dark, as the reader's system is.
(() => {
  const config = { displaylogo: false, responsive: true, showLink: false, showSendToCloud: false,
    showEditInChartStudio: false, plotlyServerURL: "", displayModeBar: false };
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

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
      const figure = JSON.parse(document.getElementById(place.id + "-data").textContent);
      Plotly.react(place, figure.data, styled(figure.layout), config);
    }
  }

  draw();
  dark.addEventListener("change", draw);
})();
