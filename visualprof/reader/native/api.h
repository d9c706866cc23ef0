/* What Python may call; everything else stays inside the library. */
#ifndef VP_API_H
#define VP_API_H

#if defined(_WIN32)
#define API __declspec(dllexport)
#else
#define API __attribute__((visibility("default")))
#endif

#endif
