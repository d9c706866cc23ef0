/* API marks the functions that Python calls; all others are private to the library. */
#ifndef VP_API_H
#define VP_API_H

#if defined(_WIN32)
#define API __declspec(dllexport)
#else
#define API __attribute__((visibility("default")))
#endif

#endif
