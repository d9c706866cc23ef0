BEGIN;
CREATE TABLE agents (
	id VARCHAR(32) NOT NULL, 
	owner VARCHAR(64), 
	name VARCHAR(200) NOT NULL, 
	token_sha256 VARCHAR(64) NOT NULL, 
	public BOOLEAN NOT NULL, 
	local BOOLEAN NOT NULL, 
	address VARCHAR(200) NOT NULL, 
	standing VARCHAR(16) DEFAULT 'works' NOT NULL, 
	capabilities TEXT NOT NULL, 
	registered_ns BIGINT NOT NULL, 
	seen_ns BIGINT NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (token_sha256)
);
INSERT INTO "agents" VALUES('x4p4k4cejc',NULL,'sample','0000000000000000000000000000000000000000000000000000000000000000',1,0,'127.0.0.1','works','{"platform":"x86","machine":"x86_64","system":"Linux 6.18.44-fc-v657","hostname":"sample","cpu":"Intel(R) Xeon(R) Processor","cores":4,"memory_bytes":25324834816,"sandbox":2,"version":"0.1.0","gpus":[],"runtimes":[{"backend":"onnxruntime","version":"1.31.1","python":"/home/sample/.venv/bin/python","python_version":"3.11.7","devices":["cpu"]},{"backend":"openvino","version":"2026.4.1","python":"/home/sample/.venv/bin/python","python_version":"3.11.7","devices":["cpu"]},{"backend":"torch","version":"2.13.0+cpu","python":"/home/sample/.venv/bin/python","python_version":"3.11.7","devices":["cpu"]}],"tags":["sample"]}',1795344026334546112,1795344081858225403);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0002');
CREATE TABLE artefacts (
	task VARCHAR(40) NOT NULL, 
	attempt INTEGER NOT NULL, 
	name VARCHAR(300) NOT NULL, 
	owner VARCHAR(64), 
	"key" VARCHAR(200) NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	PRIMARY KEY (task, attempt, name), 
	FOREIGN KEY(task) REFERENCES tasks (id)
);
CREATE TABLE blobs (
	sha256 VARCHAR(64) NOT NULL, 
	owner VARCHAR(64), 
	name VARCHAR(300) NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	inspected TEXT, 
	kept_ns BIGINT NOT NULL, 
	PRIMARY KEY (sha256)
);
INSERT INTO "blobs" VALUES('f9b88777cb66c0e6f146f467f57d8f3fb71140681eb68a3749fb6c90a9404493',NULL,'resnet10.onnx',1291761,'{"kind":"model","format":"onnx","inputs":[{"name":"input","dtype":"float32","dims":["batch",3,96,96]}],"outputs":[{"name":"logits","dtype":"float32","dims":["batch",100]}],"dims":{"batch":1},"backends":["onnxruntime","openvino"],"warnings":[],"fixed_inputs":true,"external":[],"graph":"upload:f9b88777cb66c0e6f146f467f57d8f3fb71140681eb68a3749fb6c90a9404493","name":"resnet10.onnx","size_bytes":1291761,"names":["resnet10.onnx"]}',1795344026363613291);
CREATE TABLE jobs (
	id VARCHAR(32) NOT NULL, 
	owner VARCHAR(64), 
	"key" VARCHAR(200) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	request TEXT NOT NULL, 
	model_blob VARCHAR(64) NOT NULL, 
	folder VARCHAR(300) NOT NULL, 
	retries INTEGER NOT NULL, 
	timeout_ns BIGINT NOT NULL, 
	submitted_ns BIGINT NOT NULL, 
	revision BIGINT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "jobs" VALUES('sample',NULL,'sample','0ebc1171eaf1367deadf3267b446937410a32c74b9d215b02bdd7a8c07bd9197','{"dims":{},"inputs":[{"blob":"","dims":["batch",3,96,96],"dtype":"float32","fill":"random","name":"input"}],"key":"sample","measure":{"max_s":60.0,"min_n":662,"min_s":1.0,"warmup_s":0.2},"model":{"blob":"f9b88777cb66c0e6f146f467f57d8f3fb71140681eb68a3749fb6c90a9404493","name":"resnet10.onnx","parts":[]},"monitor_interval_s":0.1,"name":"ResNet-10","profile":{"at":0,"runs":20},"retries":2,"sample":true,"specs":[{"agent":"","backend":"onnxruntime","device":"cpu","id":"ort-1t","options":{},"platform":"","precision":"","threads":1,"version":""},{"agent":"","backend":"onnxruntime","device":"cpu","id":"ort-2t","options":{},"platform":"","precision":"","threads":2,"version":""},{"agent":"","backend":"openvino","device":"cpu","id":"ov-f32-2t","options":{},"platform":"","precision":"f32","threads":2,"version":""},{"agent":"","backend":"openvino","device":"cpu","id":"ov-bf16-2t","options":{},"platform":"","precision":"bf16","threads":2,"version":""}],"spread":false,"sweep":{"dim":"batch","values":[1,2,4,8,16,32]},"timeout_s":900.0}','f9b88777cb66c0e6f146f467f57d8f3fb71140681eb68a3749fb6c90a9404493','resnet10-sample',2,900000000000,1795344027267905445,61);
CREATE TABLE points (
	task VARCHAR(40) NOT NULL, 
	attempt INTEGER NOT NULL, 
	batch BIGINT NOT NULL, 
	owner VARCHAR(64), 
	point TEXT NOT NULL, 
	PRIMARY KEY (task, attempt, batch), 
	FOREIGN KEY(task) REFERENCES tasks (id)
);
INSERT INTO "points" VALUES('sample-0',1,1,NULL,'{"batch": 1, "n": 3477, "duration_ns": 1000023823, "load_ns": 9026949, "first_ns": 800839, "warmup_n": 702, "qps": 3476.9171694022734, "samples_per_s": 3476.9171694022734, "whole_samples_per_s": 2973.5274589103396, "mean_ns": 285749, "min_ns": 225163, "max_ns": 731480, "p50_ns": 275941, "p90_ns": 327926, "p95_ns": 384711, "p99_ns": 445348, "p999_ns": null, "trusted": [50, 90, 95, 99], "iqr_ns": 21754, "window_p50_ns": [274200, 270161, 285156], "window_mean_ns": [278992, 273800, 304457], "window_p99_ns": [456164, 457182, 431312], "stable": false, "involuntary_switches": 2, "pressure": 0.11905330105790021, "host_busy": true, "rss_bytes": 78835712, "gpu_memory_bytes": null, "energy_j_per_sample": null, "throttled": null, "start_ns": 1795344027764716036, "end_ns": 1795344028764739859, "latencies": [0, 3477]}');
INSERT INTO "points" VALUES('sample-0',1,2,NULL,'{"batch": 2, "n": 1656, "duration_ns": 1000194701, "load_ns": 9026949, "first_ns": 741226, "warmup_n": 270, "qps": 1655.6776379082216, "samples_per_s": 3311.3552758164433, "whole_samples_per_s": 3515.8813390048085, "mean_ns": 600602, "min_ns": 432661, "max_ns": 52830039, "p50_ns": 548639, "p90_ns": 620032, "p95_ns": 753577, "p99_ns": 930646, "p999_ns": null, "trusted": [50, 90, 95, 99], "iqr_ns": 26847, "window_p50_ns": [540019, 556518, 548532], "window_mean_ns": [547482, 604305, 650020], "window_p99_ns": [737025, 1126566, 675025], "stable": false, "involuntary_switches": 1, "pressure": 0.31888964750961335, "host_busy": true, "rss_bytes": 80039936, "gpu_memory_bytes": null, "energy_j_per_sample": null, "throttled": null, "start_ns": 1795344029480049409, "end_ns": 1795344030480244110, "latencies": [13908, 1656]}');
INSERT INTO "points" VALUES('sample-0',1,4,NULL,'{"batch": 4, "n": 848, "duration_ns": 1000840043, "load_ns": 9026949, "first_ns": 1386885, "warmup_n": 182, "qps": 847.2882414437928, "samples_per_s": 3389.152965775171, "whole_samples_per_s": 3279.896919399617, "mean_ns": 1175543, "min_ns": 947560, "max_ns": 49026328, "p50_ns": 1080666, "p90_ns": 1168052, "p95_ns": 1316926, "p99_ns": 1928051, "p999_ns": null, "trusted": [50, 90, 95, 99], "iqr_ns": 49655, "window_p50_ns": [1087968, 1069895, 1087722], "window_mean_ns": [1301567, 1097819, 1127071], "window_p99_ns": [2089583, 1854385, 1928051], "stable": false, "involuntary_switches": 19, "pressure": 0.3164158305107695, "host_busy": true, "rss_bytes": 80195584, "gpu_memory_bytes": null, "energy_j_per_sample": null, "throttled": null, "start_ns": 1795344031194252990, "end_ns": 1795344032195093033, "latencies": [20532, 848]}');
INSERT INTO "points" VALUES('sample-0',1,8,NULL,'{"batch": 8, "n": 662, "duration_ns": 1705371825, "load_ns": 9026949, "first_ns": 3198283, "warmup_n": 93, "qps": 388.1851396249026, "samples_per_s": 3105.481116999221, "whole_samples_per_s": 3637.040027196764, "mean_ns": 2569017, "min_ns": 2002826, "max_ns": 54894247, "p50_ns": 2174713, "p90_ns": 2997061, "p95_ns": 3083889, "p99_ns": 3601136, "p999_ns": null, "trusted": [50, 90, 95, 99], "iqr_ns": 740726, "window_p50_ns": [2128667, 2863724, 2150885], "window_mean_ns": [2458646, 2721171, 2527043], "window_p99_ns": [3826692, 3601136, 3174200], "stable": false, "involuntary_switches": 12, "pressure": 0.458798257630845, "host_busy": true, "rss_bytes": 82243584, "gpu_memory_bytes": null, "energy_j_per_sample": null, "throttled": null, "start_ns": 1795344032915241037, "end_ns": 1795344034620612862, "latencies": [23924, 662]}');
INSERT INTO "points" VALUES('sample-0',1,16,NULL,'{"batch": 16, "n": 662, "duration_ns": 2944988419, "load_ns": 9026949, "first_ns": 6258906, "warmup_n": 37, "qps": 224.78865985652624, "samples_per_s": 3596.61855770442, "whole_samples_per_s": 3997.3147238879337, "mean_ns": 4442355, "min_ns": 3432224, "max_ns": 55168561, "p50_ns": 4183330, "p90_ns": 4889337, "p95_ns": 5544980, "p99_ns": 5762869, "p999_ns": null, "trusted": [50, 90, 95, 99], "iqr_ns": 240166, "window_p50_ns": [4260751, 4153206, 4092379], "window_mean_ns": [4544780, 4447333, 4334464], "window_p99_ns": [5367748, 5765728, 5325534], "stable": true, "involuntary_switches": 30, "pressure": 0.7317756119857383, "host_busy": true, "rss_bytes": 87683072, "gpu_memory_bytes": null, "energy_j_per_sample": null, "throttled": null, "start_ns": 1795344035351850351, "end_ns": 1795344038296838770, "latencies": [26572, 662]}');
INSERT INTO "points" VALUES('sample-0',1,32,NULL,'{"batch": 32, "n": 662, "duration_ns": 5192982228, "load_ns": 9026949, "first_ns": 9056114, "warmup_n": 22, "qps": 127.47973533022459, "samples_per_s": 4079.3515305671867, "whole_samples_per_s": 3871.9759248153996, "mean_ns": 7838508, "min_ns": 6474814, "max_ns": 61358743, "p50_ns": 7596492, "p90_ns": 8166332, "p95_ns": 8325696, "p99_ns": 12102610, "p999_ns": null, "trusted": [50, 90, 95, 99], "iqr_ns": 871537, "window_p50_ns": [7414775, 7906529, 7361811], "window_mean_ns": [7629486, 8205722, 7679595], "window_p99_ns": [15760634, 9302690, 8577403], "stable": false, "involuntary_switches": 84, "pressure": 0.6349900898775866, "host_busy": true, "rss_bytes": 95387648, "gpu_memory_bytes": null, "energy_j_per_sample": null, "throttled": null, "start_ns": 1795344039038964602, "end_ns": 1795344044231946830, "latencies": [29220, 662]}');
INSERT INTO "points" VALUES('sample-1',1,1,NULL,'{"batch": 1, "n": 4988, "duration_ns": 1000115639, "load_ns": 8035041, "first_ns": 582104, "warmup_n": 1092, "qps": 4987.423259361711, "samples_per_s": 4987.423259361711, "whole_samples_per_s": 5168.068227777139, "mean_ns": 199345, "min_ns": 143267, "max_ns": 50571642, "p50_ns": 181889, "p90_ns": 216230, "p95_ns": 231666, "p99_ns": 297021, "p999_ns": null, "trusted": [50, 90, 95, 99], "iqr_ns": 20091, "window_p50_ns": [174961, 183075, 189427], "window_mean_ns": [177077, 188164, 232814], "window_p99_ns": [274751, 257440, 439566], "stable": false, "involuntary_switches": 10, "pressure": 0.6406933581002803, "host_busy": true, "rss_bytes": 78958592, "gpu_memory_bytes": null, "energy_j_per_sample": null, "throttled": null, "start_ns": 1795344045633758975, "end_ns": 1795344046633874614, "latencies": [0, 4988]}');
INSERT INTO "points" VALUES('sample-1',1,2,NULL,'{"batch": 2, "n": 3206, "duration_ns": 1000146134, "load_ns": 8035041, "first_ns": 497421, "warmup_n": 478, "qps": 3205.5315628505946, "samples_per_s": 6411.063125701189, "whole_samples_per_s": 5743.0330115532315, "mean_ns": 310405, "min_ns": 238009, "max_ns": 48358051, "p50_ns": 293985, "p90_ns": 325243, "p95_ns": 348052, "p99_ns": 466144, "p999_ns": null, "trusted": [50, 90, 95, 99], "iqr_ns": 39433, "window_p50_ns": [271297, 304357, 293862], "window_mean_ns": [281738, 313986, 335515], "window_p99_ns": [469514, 540147, 358162], "stable": false, "involuntary_switches": 3, "pressure": 0.6522565982031512, "host_busy": true, "rss_bytes": 80158720, "gpu_memory_bytes": null, "energy_j_per_sample": null, "throttled": null, "start_ns": 1795344047347110346, "end_ns": 1795344048347256480, "latencies": [19952, 3206]}');
INSERT INTO "points" VALUES('sample-1',1,4,NULL,'{"batch": 4, "n": 1564, "duration_ns": 1000387985, "load_ns": 8035041, "first_ns": 1107416, "warmup_n": 417, "qps": 1563.3934268013024, "samples_per_s": 6253.57370720521, "whole_samples_per_s": 6404.928708585659, "mean_ns": 637378, "min_ns": 458161, "max_ns": 8734280, "p50_ns": 568551, "p90_ns": 836540, "p95_ns": 867362, "p99_ns": 1021137, "p999_ns": null, "trusted": [50, 90, 95, 99], "iqr_ns": 192563, "window_p50_ns": [740146, 565096, 561869], "window_mean_ns": [704050, 643797, 564158], "window_p99_ns": [886575, 1079373, 685928], "stable": false, "involuntary_switches": 10, "pressure": 0.3496049590282392, "host_busy": true, "rss_bytes": 80314368, "gpu_memory_bytes": null, "energy_j_per_sample": null, "throttled": null, "start_ns": 1795344049161297417, "end_ns": 1795344050161685402, "latencies": [32776, 1564]}');
INSERT INTO "points" VALUES('sample-1',1,8,NULL,'{"batch": 8, "n": 862, "duration_ns": 1000270186, "load_ns": 8035041, "first_ns": 1615263, "warmup_n": 196, "qps": 861.7671625774119, "samples_per_s": 6894.137300619295, "whole_samples_per_s": 7022.7212607765105, "mean_ns": 1157031, "min_ns": 880836, "max_ns": 51806599, "p50_ns": 1041717, "p90_ns": 1210882, "p95_ns": 1650319, "p99_ns": 2206663, "p999_ns": null, "trusted": [50, 90, 95, 99], "iqr_ns": 68562, "window_p50_ns": [1031030, 1060341, 1038805], "window_mean_ns": [1036437, 1389818, 1045259], "window_p99_ns": [1604294, 3001039, 1521112], "stable": false, "involuntary_switches": 29, "pressure": 0.24426918567604888, "host_busy": true, "rss_bytes": 82386944, "gpu_memory_bytes": null, "energy_j_per_sample": null, "throttled": null, "start_ns": 1795344050877942612, "end_ns": 1795344051878212798, "latencies": [39032, 862]}');
INSERT INTO "points" VALUES('sample-1',1,16,NULL,'{"batch": 16, "n": 662, "duration_ns": 1539200790, "load_ns": 8035041, "first_ns": 2457777, "warmup_n": 156, "qps": 430.09333434658646, "samples_per_s": 6881.493349545383, "whole_samples_per_s": 5204.721690788805, "mean_ns": 2320356, "min_ns": 1698024, "max_ns": 54547256, "p50_ns": 2131823, "p90_ns": 2636220, "p95_ns": 2679748, "p99_ns": 2762695, "p999_ns": null, "trusted": [50, 90, 95, 99], "iqr_ns": 529868, "window_p50_ns": [2014905, 2125926, 2605540], "window_mean_ns": [1981906, 2402194, 2578134], "window_p99_ns": [2366302, 3491282, 2749016], "stable": false, "involuntary_switches": 10, "pressure": 0.5024492098657016, "host_busy": true, "rss_bytes": 87830528, "gpu_memory_bytes": null, "energy_j_per_sample": null, "throttled": null, "start_ns": 1795344052697935167, "end_ns": 1795344054237135957, "latencies": [42480, 662]}');
INSERT INTO "points" VALUES('sample-1',1,32,NULL,'{"batch": 32, "n": 662, "duration_ns": 3425005370, "load_ns": 8035041, "first_ns": 6028169, "warmup_n": 45, "qps": 193.28436848553028, "samples_per_s": 6185.099791536969, "whole_samples_per_s": 7229.802993006879, "mean_ns": 5168037, "min_ns": 3608218, "max_ns": 58816584, "p50_ns": 4276481, "p90_ns": 6589683, "p95_ns": 6787416, "p99_ns": 13052320, "p999_ns": null, "trusted": [50, 90, 95, 99], "iqr_ns": 1064340, "window_p50_ns": [5106039, 4209797, 4246386], "window_mean_ns": [5409318, 4879512, 5215497], "window_p99_ns": [6845312, 10683738, 41821871], "stable": false, "involuntary_switches": 97, "pressure": 0.7997782600570077, "host_busy": true, "rss_bytes": 95510528, "gpu_memory_bytes": null, "energy_j_per_sample": null, "throttled": null, "start_ns": 1795344054973319754, "end_ns": 1795344058398325124, "latencies": [45128, 662]}');
INSERT INTO "points" VALUES('sample-2',1,1,NULL,'{"batch": 1, "n": 4600, "duration_ns": 1000146898, "load_ns": 52120839, "first_ns": 6909714, "warmup_n": 935, "qps": 4599.324368448923, "samples_per_s": 4599.324368448923, "whole_samples_per_s": 3861.5908490031848, "mean_ns": 216064, "min_ns": 166697, "max_ns": 42790690, "p50_ns": 200052, "p90_ns": 221378, "p95_ns": 234952, "p99_ns": 297843, "p999_ns": null, "trusted": [50, 90, 95, 99], "iqr_ns": 16512, "window_p50_ns": [204552, 195527, 199726], "window_mean_ns": [210915, 198652, 238629], "window_p99_ns": [303276, 236763, 313226], "stable": false, "involuntary_switches": 40, "pressure": 0.9254331617234521, "host_busy": true, "rss_bytes": 116850688, "gpu_memory_bytes": null, "energy_j_per_sample": null, "throttled": null, "start_ns": 1795344059920386304, "end_ns": 1795344060920533202, "latencies": [0, 4600]}');
INSERT INTO "points" VALUES('sample-2',1,2,NULL,'{"batch": 2, "n": 2637, "duration_ns": 1000100452, "load_ns": 52120839, "first_ns": 4558955, "warmup_n": 614, "qps": 2636.735134682251, "samples_per_s": 5273.470269364502, "whole_samples_per_s": 5207.198820389495, "mean_ns": 376893, "min_ns": 311515, "max_ns": 53537576, "p50_ns": 353128, "p90_ns": 379481, "p95_ns": 389629, "p99_ns": 436941, "p999_ns": null, "trusted": [50, 90, 95, 99], "iqr_ns": 25524, "window_p50_ns": [355863, 355162, 347567], "window_mean_ns": [359054, 357678, 413946], "window_p99_ns": [417141, 416878, 470229], "stable": false, "involuntary_switches": 2, "pressure": 0.8171059168664029, "host_busy": true, "rss_bytes": 119705600, "gpu_memory_bytes": null, "energy_j_per_sample": null, "throttled": null, "start_ns": 1795344061743343243, "end_ns": 1795344062743443695, "latencies": [18400, 2637]}');
INSERT INTO "points" VALUES('sample-2',1,4,NULL,'{"batch": 4, "n": 1611, "duration_ns": 1000536598, "load_ns": 52120839, "first_ns": 3952580, "warmup_n": 346, "qps": 1610.1360042403967, "samples_per_s": 6440.544016961587, "whole_samples_per_s": 5717.383976657176, "mean_ns": 617894, "min_ns": 519698, "max_ns": 52751661, "p50_ns": 580277, "p90_ns": 617258, "p95_ns": 634971, "p99_ns": 736066, "p999_ns": null, "trusted": [50, 90, 95, 99], "iqr_ns": 32907, "window_p50_ns": [569556, 584702, 584382], "window_mean_ns": [673826, 590305, 589551], "window_p99_ns": [784888, 718784, 734113], "stable": false, "involuntary_switches": 1, "pressure": 0.9739541338599099, "host_busy": true, "rss_bytes": 120860672, "gpu_memory_bytes": null, "energy_j_per_sample": null, "throttled": null, "start_ns": 1795344063464365277, "end_ns": 1795344064464901875, "latencies": [28948, 1611]}');
INSERT INTO "points" VALUES('sample-2',1,8,NULL,'{"batch": 8, "n": 884, "duration_ns": 1000340229, "load_ns": 52120839, "first_ns": 6539058, "warmup_n": 341, "qps": 883.6993398572997, "samples_per_s": 7069.594718858398, "whole_samples_per_s": 6663.381409237376, "mean_ns": 1127202, "min_ns": 852407, "max_ns": 27160376, "p50_ns": 1036533, "p90_ns": 1139278, "p95_ns": 1268425, "p99_ns": 1965275, "p999_ns": null, "trusted": [50, 90, 95, 99], "iqr_ns": 67937, "window_p50_ns": [1086168, 1018801, 1011597], "window_mean_ns": [1334115, 1030781, 1016334], "window_p99_ns": [6202830, 1268425, 1217024], "stable": false, "involuntary_switches": 16, "pressure": 0.9197108785840528, "host_busy": true, "rss_bytes": 123465728, "gpu_memory_bytes": null, "energy_j_per_sample": null, "throttled": null, "start_ns": 1795344065393953103, "end_ns": 1795344066394293332, "latencies": [35392, 884]}');
INSERT INTO "points" VALUES('sample-2',1,16,NULL,'{"batch": 16, "n": 662, "duration_ns": 1330352253, "load_ns": 52120839, "first_ns": 6422852, "warmup_n": 107, "qps": 497.61256727845, "samples_per_s": 7961.8010764552, "whole_samples_per_s": 7261.945421353609, "mean_ns": 2004781, "min_ns": 1606397, "max_ns": 52631159, "p50_ns": 1901674, "p90_ns": 1995932, "p95_ns": 2249901, "p99_ns": 2823904, "p999_ns": null, "trusted": [50, 90, 95, 99], "iqr_ns": 75945, "window_p50_ns": [1900484, 1897111, 1907851], "window_mean_ns": [1935205, 2131538, 1947340], "window_p99_ns": [2918906, 2213960, 2809727], "stable": false, "involuntary_switches": 1, "pressure": 0.9455255609372608, "host_busy": true, "rss_bytes": 127614976, "gpu_memory_bytes": null, "energy_j_per_sample": null, "throttled": null, "start_ns": 1795344067123627047, "end_ns": 1795344068453979300, "latencies": [38928, 662]}');
INSERT INTO "points" VALUES('sample-2',1,32,NULL,'{"batch": 32, "n": 662, "duration_ns": 2506581644, "load_ns": 52120839, "first_ns": 9781631, "warmup_n": 56, "qps": 264.1047027471171, "samples_per_s": 8451.350487907746, "whole_samples_per_s": 7856.5147936287285, "mean_ns": 3781539, "min_ns": 3134464, "max_ns": 54990513, "p50_ns": 3649332, "p90_ns": 3815096, "p95_ns": 3858036, "p99_ns": 4709433, "p999_ns": null, "trusted": [50, 90, 95, 99], "iqr_ns": 251119, "window_p50_ns": [3690918, 3652935, 3596948], "window_mean_ns": [3891811, 3878648, 3573217], "window_p99_ns": [4162001, 4836058, 3898476], "stable": true, "involuntary_switches": 2, "pressure": 0.9061318075429227, "host_busy": true, "rss_bytes": 135385088, "gpu_memory_bytes": null, "energy_j_per_sample": null, "throttled": null, "start_ns": 1795344069196603332, "end_ns": 1795344071703184976, "latencies": [41576, 662]}');
INSERT INTO "points" VALUES('sample-3',1,1,NULL,'{"batch": 1, "n": 6569, "duration_ns": 1000112146, "load_ns": 55735869, "first_ns": 12504079, "warmup_n": 1880, "qps": 6568.263395533245, "samples_per_s": 6568.263395533245, "whole_samples_per_s": 6548.171370759344, "mean_ns": 151171, "min_ns": 110734, "max_ns": 50785640, "p50_ns": 139282, "p90_ns": 163354, "p95_ns": 174497, "p99_ns": 208822, "p999_ns": null, "trusted": [50, 90, 95, 99], "iqr_ns": 14435, "window_p50_ns": [137284, 139676, 141194], "window_mean_ns": [140195, 143277, 170049], "window_p99_ns": [197860, 195922, 228460], "stable": false, "involuntary_switches": 1, "pressure": 0.956721891071264, "host_busy": true, "rss_bytes": 118587392, "gpu_memory_bytes": null, "energy_j_per_sample": null, "throttled": null, "start_ns": 1795344073392113351, "end_ns": 1795344074392225497, "latencies": [0, 6569]}');
INSERT INTO "points" VALUES('sample-3',1,2,NULL,'{"batch": 2, "n": 5060, "duration_ns": 1000010734, "load_ns": 55735869, "first_ns": 7126375, "warmup_n": 740, "qps": 5059.945686543001, "samples_per_s": 10119.891373086002, "whole_samples_per_s": 9108.42758361743, "mean_ns": 196110, "min_ns": 142640, "max_ns": 50518721, "p50_ns": 180025, "p90_ns": 207416, "p95_ns": 222002, "p99_ns": 280027, "p999_ns": null, "trusted": [50, 90, 95, 99], "iqr_ns": 21230, "window_p50_ns": [189569, 176787, 177068], "window_mean_ns": [194424, 182507, 211407], "window_p99_ns": [334804, 257702, 268583], "stable": false, "involuntary_switches": 2, "pressure": 0.9631151843349542, "host_busy": true, "rss_bytes": 120188928, "gpu_memory_bytes": null, "energy_j_per_sample": null, "throttled": null, "start_ns": 1795344075113927559, "end_ns": 1795344076113938293, "latencies": [26276, 5060]}');
INSERT INTO "points" VALUES('sample-3',1,4,NULL,'{"batch": 4, "n": 3306, "duration_ns": 1000226302, "load_ns": 55735869, "first_ns": 8274598, "warmup_n": 619, "qps": 3305.2520148585336, "samples_per_s": 13221.008059434134, "whole_samples_per_s": 11217.63468780802, "mean_ns": 300588, "min_ns": 238711, "max_ns": 36581235, "p50_ns": 280416, "p90_ns": 315691, "p95_ns": 330464, "p99_ns": 370756, "p999_ns": null, "trusted": [50, 90, 95, 99], "iqr_ns": 33797, "window_p50_ns": [290062, 282751, 268195], "window_mean_ns": [339490, 287018, 275257], "window_p99_ns": [376699, 383801, 345848], "stable": false, "involuntary_switches": 8, "pressure": 0.9640494640857248, "host_busy": true, "rss_bytes": 121880576, "gpu_memory_bytes": null, "energy_j_per_sample": null, "throttled": null, "start_ns": 1795344076838754186, "end_ns": 1795344077838980488, "latencies": [46516, 3306]}');
INSERT INTO "points" VALUES('sample-3',1,8,NULL,'{"batch": 8, "n": 1860, "duration_ns": 1000201163, "load_ns": 55735869, "first_ns": 8004877, "warmup_n": 413, "qps": 1859.6259120726497, "samples_per_s": 14877.007296581198, "whole_samples_per_s": 14674.227239887912, "mean_ns": 534660, "min_ns": 413223, "max_ns": 50997933, "p50_ns": 504503, "p90_ns": 548827, "p95_ns": 572082, "p99_ns": 674093, "p999_ns": null, "trusted": [50, 90, 95, 99], "iqr_ns": 41206, "window_p50_ns": [503687, 506044, 504051], "window_mean_ns": [507396, 590795, 505789], "window_p99_ns": [681220, 641512, 683377], "stable": false, "involuntary_switches": 2, "pressure": 0.9465888398825332, "host_busy": true, "rss_bytes": 125538304, "gpu_memory_bytes": null, "energy_j_per_sample": null, "throttled": null, "start_ns": 1795344078564454563, "end_ns": 1795344079564655726, "latencies": [59740, 1860]}');
INSERT INTO "points" VALUES('sample-3',1,16,NULL,'{"batch": 16, "n": 1017, "duration_ns": 1000110421, "load_ns": 55735869, "first_ns": 8232661, "warmup_n": 222, "qps": 1016.8877142417057, "samples_per_s": 16270.20342786729, "whole_samples_per_s": 15603.996781515787, "mean_ns": 979302, "min_ns": 779974, "max_ns": 53662110, "p50_ns": 918011, "p90_ns": 966504, "p95_ns": 984325, "p99_ns": 1356788, "p999_ns": null, "trusted": [50, 90, 95, 99], "iqr_ns": 43137, "window_p50_ns": [909522, 931682, 913285], "window_mean_ns": [919804, 948151, 1069952], "window_p99_ns": [1360414, 1456076, 1195163], "stable": false, "involuntary_switches": 1, "pressure": 0.9603957578103558, "host_busy": true, "rss_bytes": 129974272, "gpu_memory_bytes": null, "energy_j_per_sample": null, "throttled": null, "start_ns": 1795344080344066742, "end_ns": 1795344081344177163, "latencies": [67180, 1017]}');
INSERT INTO "points" VALUES('sample-3',1,32,NULL,'{"batch": 32, "n": 662, "duration_ns": 1259272147, "load_ns": 55735869, "first_ns": 10490865, "warmup_n": 114, "qps": 525.7005021329992, "samples_per_s": 16822.416068255974, "whole_samples_per_s": 17450.354127031624, "mean_ns": 1897638, "min_ns": 1444684, "max_ns": 56067165, "p50_ns": 1674360, "p90_ns": 1767753, "p95_ns": 1873797, "p99_ns": 3714044, "p999_ns": null, "trusted": [50, 90, 95, 99], "iqr_ns": 94769, "window_p50_ns": [1659628, 1661371, 1689407], "window_mean_ns": [1968201, 1742122, 1982978], "window_p99_ns": [3362354, 3714044, 3026386], "stable": false, "involuntary_switches": 5, "pressure": 0.9648079339599683, "host_busy": true, "rss_bytes": 136286208, "gpu_memory_bytes": null, "energy_j_per_sample": null, "throttled": null, "start_ns": 1795344082087141828, "end_ns": 1795344083346413975, "latencies": [71248, 662]}');
CREATE TABLE revisions (
	name VARCHAR(32) NOT NULL, 
	revision BIGINT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "revisions" VALUES('jobs',61);
INSERT INTO "revisions" VALUES('agents',1);
CREATE TABLE tasks (
	seq INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	job VARCHAR(32) NOT NULL, 
	owner VARCHAR(64), 
	spec_id VARCHAR(48) NOT NULL, 
	spec TEXT NOT NULL, 
	backend VARCHAR(64) NOT NULL, 
	version VARCHAR(64) NOT NULL, 
	wanted_agent VARCHAR(32) NOT NULL, 
	platform VARCHAR(16) NOT NULL, 
	device VARCHAR(32) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	phase VARCHAR(16), 
	progress FLOAT NOT NULL, 
	attempt INTEGER NOT NULL, 
	tries INTEGER NOT NULL, 
	updated_ns BIGINT NOT NULL, 
	agent VARCHAR(32), 
	on_device VARCHAR(32), 
	on_version VARCHAR(64), 
	lease VARCHAR(64), 
	lease_until_ns BIGINT, 
	started_ns BIGINT, 
	deadline_ns BIGINT, 
	cancel BOOLEAN NOT NULL, 
	reason VARCHAR(32), 
	error TEXT, 
	hint TEXT, 
	warnings TEXT NOT NULL, 
	run VARCHAR(400), 
	log_bytes BIGINT NOT NULL, 
	log_cut BIGINT NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (id), 
	FOREIGN KEY(job) REFERENCES jobs (id)
);
INSERT INTO "tasks" VALUES(1,'sample-0','sample',NULL,'ort-1t','{"id":"ort-1t","backend":"onnxruntime","version":"","agent":"","platform":"","device":"cpu","precision":"","threads":1,"options":{}}','onnxruntime','','','','cpu','succeeded',NULL,1.0,1,1,1795344045161102081,'x4p4k4cejc','cpu','1.31.1','908922798c02055b78dc86c5d2ec7b13',1795344074833202081,1795344027277027711,1795344957496076009,0,NULL,NULL,NULL,'[]','resnet10-sample/ort-1t',0,0);
INSERT INTO "tasks" VALUES(2,'sample-1','sample',NULL,'ort-2t','{"id":"ort-2t","backend":"onnxruntime","version":"","agent":"","platform":"","device":"cpu","precision":"","threads":2,"options":{}}','onnxruntime','','','','cpu','succeeded',NULL,1.0,1,1,1795344059342969476,'x4p4k4cejc','cpu','1.31.1','5da01e9be4ddf538fa436ac727debd53',1795344088935230427,1795344045185672454,1795344975185672454,0,NULL,NULL,NULL,'[]','resnet10-sample/ort-2t',0,0);
INSERT INTO "tasks" VALUES(3,'sample-2','sample',NULL,'ov-f32-2t','{"id":"ov-f32-2t","backend":"openvino","version":"","agent":"","platform":"","device":"cpu","precision":"f32","threads":2,"options":{}}','openvino','','','','cpu','succeeded',NULL,1.0,1,1,1795344072698898100,'x4p4k4cejc','cpu','2026.4.1','58eef8ba478eda4aeb58eddf6cb06ba5',1795344102564437046,1795344059369311196,1795344989369311196,0,NULL,NULL,NULL,'[]','resnet10-sample/ov-f32-2t',0,0);
INSERT INTO "tasks" VALUES(4,'sample-3','sample',NULL,'ov-bf16-2t','{"id":"ov-bf16-2t","backend":"openvino","version":"","agent":"","platform":"","device":"cpu","precision":"bf16","threads":2,"options":{}}','openvino','','','','cpu','succeeded',NULL,1.0,1,1,1795344084442819914,'x4p4k4cejc','cpu','2026.4.1','3d85fb68d15e6674d21ab4f814fa7765',1795344113877706057,1795344072749853274,1795345002749853274,0,NULL,NULL,NULL,'[]','resnet10-sample/ov-bf16-2t',0,0);
CREATE INDEX ix_jobs_revision ON jobs (revision);
CREATE UNIQUE INDEX jobs_by_key ON jobs (coalesce(owner, ''), "key");
CREATE INDEX tasks_by_state ON tasks (state, seq);
CREATE INDEX ix_tasks_job ON tasks (job);
CREATE INDEX ix_tasks_agent ON tasks (agent);
COMMIT;
