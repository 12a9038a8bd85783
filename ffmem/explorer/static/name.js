// A name is typed once: the next time it stands in the field.
export function rememberName() {
  const field = document.querySelector("#annotator");
  if (field && !field.value) field.value = localStorage.getItem("ffmem-annotator") ?? "";
  field?.form.addEventListener("submit", () => localStorage.setItem("ffmem-annotator", field.value.trim()));
}
