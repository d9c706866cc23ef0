import { useMediaQuery } from "@vueuse/core";

/** Whether the screen has room for optional content. */
export const isWideScreen = useMediaQuery("(min-width: 1700px)");
/** Whether three columns fit side by side. */
export const fitsThreeColumns = useMediaQuery("(min-width: 1501px)");
/** Whether the side bar leaves enough width for the page. */
export const fitsSideBar = useMediaQuery("(min-width: 1100px)");

/** Whether a table of a dozen columns leaves too little width for its names. */
export const isNarrowScreen = useMediaQuery("(max-width: 1400px)");
