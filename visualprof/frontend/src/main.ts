import "./api/session"; // first: it takes the token out of the address
import { PAGES } from "./pages";
import { addPages } from "./router";
import { start } from "./start";

addPages(PAGES);
void start();
