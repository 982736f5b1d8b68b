/* A folder for the files of one test process, removed when it ends. */
#ifndef BATON_TESTS_ROUTER_SCRATCH_FOLDER_H
#define BATON_TESTS_ROUTER_SCRATCH_FOLDER_H

/* Made under $TMPDIR at the first call; the same path (static) from then on. Aborts on failure. */
const char *scratch_folder(void);

#endif
