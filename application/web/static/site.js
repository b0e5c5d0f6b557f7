"use strict";

const forms = document.querySelectorAll("form");

// A form leaves out empty fields and unchanged choices, so that an address shows what was chosen.
const given = new URLSearchParams(location.search);
for (const form of forms) {
  form.addEventListener("submit", () => {
    for (const field of form.elements) {
      const isKept = field.matches("select") && field.selectedOptions[0]?.defaultSelected && !given.has(field.name);
      if (field.name && (!field.value || isKept)) field.disabled = true;
    }
  });
}

// A page that the browser restores has its fields again.
window.addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll("form :disabled")) field.disabled = false;
});

// A choice of days and a first or last day exclude each other.
for (const form of forms) {
  const { when, from, to } = form.elements;
  if (!when || !from || !to) continue;
  when.addEventListener("change", () => {
    if (when.value) from.value = to.value = "";
  });
}

// Filters apply on change, and the changed field keeps the focus.
for (const form of document.querySelectorAll("form[data-auto]")) {
  form.addEventListener("change", (event) => {
    sessionStorage.setItem("changed", event.target.name);
    form.requestSubmit();
  });
  const changed = form.elements[sessionStorage.getItem("changed")];
  if (changed && form.previousElementSibling?.matches(".fold")) form.previousElementSibling.open = true;
  changed?.focus({ preventScroll: true });
}
sessionStorage.removeItem("changed");

// Watchlists: filters that this browser keeps under a name. The address is the list.
const FILTERS = ["coins", "ambiguous", "categories", "min_impact", "max_rank", "q"];
const lists = document.querySelector(".lists");
if (lists) {
  const saved = JSON.parse(localStorage.getItem("watchlists")) ?? [];
  const keep = () => localStorage.setItem("watchlists", JSON.stringify(saved));
  const chosen = new URLSearchParams([...given].filter(([name, value]) => FILTERS.includes(name) && value)).toString();
  const rest = [...given].filter(([name]) => !FILTERS.includes(name) && name !== "page");
  const show = () => lists.querySelector("ul").replaceChildren(...saved.map(([name, filters], place) => {
    const [row, link, remove] = ["li", "a", "button"].map((tag) => document.createElement(tag));
    link.href = `?${new URLSearchParams([...new URLSearchParams(filters), ...rest])}`;
    link.textContent = name;
    if (filters === chosen) link.setAttribute("aria-current", "true");
    remove.type = "button";
    remove.textContent = "✕";
    remove.setAttribute("aria-label", `Delete ${name}`);
    remove.addEventListener("click", () => {
      saved.splice(place, 1);
      keep();
      show();
      lists.querySelector("summary").focus();
    });
    row.append(link, " ", remove);
    return row;
  }));
  lists.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const field = event.target.elements.name, place = saved.findIndex(([name]) => name === field.value);
    saved.splice(place < 0 ? saved.length : place, 1, [field.value, chosen]);
    field.value = "";
    keep();
    show();
  });
  show();
  lists.hidden = false;
}

// Only if asked, the first page of a new tab begins with the filters that were chosen last.
const isHome = location.pathname === document.querySelector(".name").pathname;
const last = new URLSearchParams([...given].filter(([name]) => !["as_of", "page"].includes(name))).toString();
const remembered = localStorage.getItem("last"), remember = document.querySelector("[name=remember]");
if (isHome && remembered && !location.search && !sessionStorage.getItem("seen")) location.replace(`?${remembered}`);
else if (isHome && remembered !== null) localStorage.setItem("last", last);
sessionStorage.setItem("seen", "1");
if (remember) {
  remember.checked = remembered !== null;
  remember.addEventListener("change", () => {
    if (remember.checked) localStorage.setItem("last", last);
    else localStorage.removeItem("last");
  });
}

// Coins are suggested while one is typed, as known at the time of the page.
const suggested = document.body.appendChild(document.createElement("datalist"));
suggested.id = "suggested";
for (const field of document.querySelectorAll(".filters input[name=coins]:not([type=hidden]), .find input[name=q]")) {
  let waiting;
  field.setAttribute("list", suggested.id);
  field.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => suggest(field), 200);
  });
}

async function suggest(field) {
  const [, before, q] = field.name === "q" ? [null, "", field.value.trim()] : field.value.match(/^(.*,\s*)?(.*)$/);
  if (!q || q.includes(":")) return;
  const address = new URL("coins", document.querySelector(".find").action);
  address.search = new URLSearchParams({ format: "json", limit: 8, q, ...(given.get("as_of") && { as_of: given.get("as_of") }) });
  const answer = await fetch(address);
  if (!answer.ok || !field.value.endsWith(q)) return;
  suggested.replaceChildren(...(await answer.json()).rows.map(({ coin, symbol, name, rank }) => {
    const told = [symbol?.toUpperCase(), name ?? coin, rank && `rank ${rank}`].filter(Boolean).join(" · ");
    return new Option(told, `${before ?? ""}slug:${coin}`);
  }));
}

// The zone is a parameter of the address; the reader's own is a choice.
const zone = document.querySelector(".zone"), own = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (own.includes("/") && ![...zone.options].some(({ text }) => text === own)) zone.add(new Option(own, own));
zone.addEventListener("change", () => {
  if (zone.value === "UTC") given.delete("tz");
  else given.set("tz", zone.value);
  location.search = given;
});

// The slider fills the field of the time machine with the pull of a day.
const slider = document.querySelector(".pulls input");
if (slider) {
  const pulls = slider.dataset.times.split(" "), field = slider.form.elements.as_of;
  const tell = () => slider.setAttribute("aria-valuetext", `${pulls[slider.value].replace("T", " ")} UTC`);
  slider.max = pulls.length - 1;
  slider.value = field.value ? Math.max(0, pulls.findLastIndex((time) => time <= field.value)) : slider.max;
  slider.parentElement.hidden = pulls.length < 2;
  slider.addEventListener("input", () => {
    field.value = pulls[slider.value];
    tell();
  });
  tell();
}

// Behind a proxy the browser knows the address of the server, and the server may not.
for (const shown of document.querySelectorAll(".subscribe a, .subscribe input, .subscribe button")) {
  const name = ["href", "value"].find((each) => shown.hasAttribute(each));
  const given = shown.getAttribute(name);
  if (/^(https?|webcal):/.test(given)) {
    const origin = given.startsWith("w") ? `webcal://${location.host}` : location.origin;
    shown.setAttribute(name, given.replace(/^\w+:\/\/[^/]*/, origin));
  }
}

// The link of this page, with its filters and its time, or the value of the button.
for (const button of document.querySelectorAll(".copy")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.value || location.href);
    button.textContent = "Copied";
  });
}

// Keys: see the dialog of "?". A field keeps its own keys.
const KEYS = {
  "/": () => document.querySelector(".find input").focus(),
  "j": () => step(1),
  "k": () => step(-1),
  "[": () => document.querySelector("a[rel=prev]")?.click(),
  "]": () => document.querySelector("a[rel=next]")?.click(),
  "?": () => document.querySelector("#keys").showModal(),
};

function step(by) {
  const rows = [...document.querySelectorAll("main table:not(.grid) tbody tr a:first-of-type, main .grid li a, main .timeline li a")]
    .map((link) => link.closest("tr, li")).filter((row, n, all) => all.indexOf(row) === n && row.checkVisibility());
  const here = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[here < 0 ? 0 : here + by];
  const links = [...(next?.querySelectorAll("a") ?? [])];
  (links.find((link) => link.matches("th a") || link.pathname.includes("/event/")) ?? links.at(0))?.focus();
}

document.addEventListener("keydown", (event) => {
  const { target } = event;
  const machine = document.querySelector(".machine[open]");
  if (event.key === "Escape" && machine) {
    machine.open = false;
    machine.querySelector("summary").focus();
  }
  if (event.ctrlKey || event.metaKey || event.altKey || target.matches("input, select, textarea, dialog *")) return;
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

document.addEventListener("click", ({ target }) => {
  const machine = document.querySelector(".machine[open]");
  if (machine && !machine.contains(target)) machine.open = false;
});
