import "./api/session"; // must be first: it removes the token from the address
import { PAGES } from "./pages";
import { addPages } from "./router";
import { start } from "./start";

addPages(PAGES);
void start();
