export * from "./client";
export * from "./model";
