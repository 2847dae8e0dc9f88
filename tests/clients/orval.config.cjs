// The address of the daemon is in BASE.
module.exports = {
  api: {
    input: "./openapi.json",
    output: { target: "./orval/api.ts", schemas: "./orval/model", client: "fetch", baseUrl: process.env.BASE, clean: true },
  },
};
