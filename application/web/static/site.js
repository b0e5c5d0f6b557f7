"use strict";

// A form leaves out its empty fields, so that an address shows only what was chosen.
for (const form of document.querySelectorAll("form")) {
  form.addEventListener("submit", () => {
    for (const field of form.elements) {
      if (field.name && !field.value) field.disabled = true;
    }
  });
}

// A page that the browser restores has its fields again.
window.addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll("form :disabled")) field.disabled = false;
});

// A choice of days and a first or last day exclude each other.
for (const form of document.querySelectorAll("form")) {
  const { when, from, to } = form.elements;
  if (!when || !from || !to) continue;
  when.addEventListener("change", () => {
    if (when.value) from.value = to.value = "";
  });
}

// The time in the reader's zone, as a hint.
for (const time of document.querySelectorAll("time[datetime*='T']")) {
  const moment = new Date(time.dateTime);
  if (!Number.isNaN(moment.getTime())) time.title = `${moment.toLocaleString()} in your zone`;
}
