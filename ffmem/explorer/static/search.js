import "./find-patterns.js";
import { onKeys } from "./keys.js";

onKeys({ "/": () => document.querySelector("#search input").focus() });
